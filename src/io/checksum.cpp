// XXH64: four 64-bit lanes over blocks of 32 bytes, joined, then the last bytes one word at a time, then a final mix.
#include <algorithm>
#include <bit>
#include <cstring>

#include "io/file.h"

namespace flashgpt {
namespace {

// The primes of the specification.
constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                        kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;
constexpr std::size_t kBlock = 32;

template <class T> T load(const std::byte* p) {  // little endian, as every machine that this is built for
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

void absorb(std::uint64_t (&lanes)[4], const std::byte* block) {
  for (int i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<std::uint64_t>(block + 8 * i));
}

}  // namespace

Checksum64::Checksum64(std::uint64_t seed) : lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, seed_(seed) {}

void Checksum64::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::size_t waiting = total_ % kBlock;
  total_ += bytes.size();
  if (waiting > 0) {
    const std::size_t take = std::min(kBlock - waiting, bytes.size());
    std::memcpy(rest_ + waiting, bytes.data(), take);
    bytes = bytes.subspan(take);
    if (waiting + take < kBlock) return;
    absorb(lanes_, rest_);
  }
  while (bytes.size() >= kBlock) {
    absorb(lanes_, bytes.data());
    bytes = bytes.subspan(kBlock);
  }
  if (!bytes.empty()) std::memcpy(rest_, bytes.data(), bytes.size());
}

std::uint64_t Checksum64::value() const {
  std::uint64_t h = seed_ + kPrime5;
  if (total_ >= kBlock) {
    h = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (std::uint64_t lane : lanes_) h = (h ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  h += total_;
  const std::byte *p = rest_, *end = rest_ + total_ % kBlock;
  for (; end - p >= 8; p += 8) h = std::rotl(h ^ round(0, load<std::uint64_t>(p)), 27) * kPrime1 + kPrime4;
  for (; end - p >= 4; p += 4) h = std::rotl(h ^ load<std::uint32_t>(p) * kPrime1, 23) * kPrime2 + kPrime3;
  for (; p < end; ++p) h = std::rotl(h ^ static_cast<std::uint64_t>(*p) * kPrime5, 11) * kPrime1;
  h = (h ^ h >> 33) * kPrime2;
  h = (h ^ h >> 29) * kPrime3;
  return h ^ h >> 32;
}

std::uint64_t checksum64(std::span<const std::byte> bytes, std::uint64_t seed) {
  Checksum64 sum(seed);
  sum.update(bytes);
  return sum.value();
}

std::uint64_t checksum64(std::string_view bytes, std::uint64_t seed) { return checksum64(std::as_bytes(std::span(bytes)), seed); }

}  // namespace flashgpt
