// Counter-based random numbers: Philox-4x32 (Salmon et al., 2011). A number depends on (key, counter) alone, so nothing is saved to replay
// it and the number of threads or the order of calls changes nothing. Weight initialisation and sampling use it; 10 rounds.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace flashgpt {

inline constexpr int kPhiloxRounds = 10;

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox(PhiloxBlock counter, std::uint64_t key, int rounds = kPhiloxRounds) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int r = 0; r < rounds; ++r) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// What a stream of numbers is for; part of the counter, so that streams never meet.
enum class RandomStream : std::uint32_t { kInit = 1, kShuffle = 2, kSampling = 3, kDropout = 4 };

constexpr PhiloxBlock philox(std::uint64_t seed, RandomStream stream, std::uint32_t id, std::uint64_t index) {
  return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), id, static_cast<std::uint32_t>(stream)}, seed);
}

// (0, 1): never 0, so that its logarithm is finite; never 1.
constexpr double uniform(std::uint32_t x) { return (static_cast<double>(x) + 0.5) * 0x1p-32; }

// Two standard normal numbers from two uniform ones (Box & Muller, 1958).
inline std::array<float, 2> normal(std::uint32_t a, std::uint32_t b) {
  const double r = std::sqrt(-2.0 * std::log(uniform(a)));
  const double angle = 2.0 * 3.14159265358979323846 * uniform(b);
  return {static_cast<float>(r * std::cos(angle)), static_cast<float>(r * std::sin(angle))};
}

}  // namespace flashgpt
