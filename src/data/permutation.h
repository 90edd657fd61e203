// A random order of 0 .. n-1 of which any element can be asked for at once: nothing is stored and seeking costs nothing.
// A Feistel network (Luby & Rackoff, 1988: any round function gives a bijection) on the smallest even number of bits that holds n, applied
// again while the result is n or more (cycle walking: fewer than 4 times on average, and again a bijection). Rounds are Philox numbers.
#pragma once
#include <bit>
#include <cstdint>

#include "core/philox.h"
#include "flashgpt/error.h"

namespace flashgpt {

class Permutation {
 public:
  // Another (seed, stream) is another order. n from 1 to 2^62.
  Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t stream) : n_(n), seed_(seed), stream_(stream) {
    require(n >= 1 && n <= std::int64_t{1} << 62, "a permutation of ", n, " elements, expected from 1 to 2^62");
    half_bits_ = (std::bit_width(static_cast<std::uint64_t>(n - 1)) + 1) / 2;
    if (half_bits_ == 0) half_bits_ = 1;
  }

  std::int64_t size() const { return n_; }

  std::int64_t operator()(std::int64_t i) const {
    std::uint64_t x = static_cast<std::uint64_t>(i);
    do x = shuffle(x);
    while (x >= static_cast<std::uint64_t>(n_));
    return static_cast<std::int64_t>(x);
  }

 private:
  static constexpr std::uint32_t kRounds = 6;

  std::uint64_t shuffle(std::uint64_t x) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const PhiloxBlock f =
          philox({static_cast<std::uint32_t>(right), static_cast<std::uint32_t>(stream_),
                  static_cast<std::uint32_t>(stream_ >> 32) ^ round << 24, static_cast<std::uint32_t>(RandomStream::kShuffle)},
                 seed_);
      const std::uint64_t next = (left ^ f[0]) & mask;
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  std::int64_t n_;
  std::uint64_t seed_, stream_;
  int half_bits_;
};

}  // namespace flashgpt
