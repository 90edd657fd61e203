// device: shared
// Counter-based random numbers: Philox-4x32 (Salmon et al., 2011). A number depends on (key, counter) alone, so nothing is saved to replay
// it and the number of threads or the order of calls changes nothing. Weight initialisation and sampling use it; 10 rounds. Dropout, below,
// takes 7, which still pass the usual batteries of tests and cost a GPU kernel a third less.
#pragma once
#include "core/host_device.h"

namespace flashgpt {

inline constexpr int kPhiloxRounds = 10;

struct PhiloxBlock {
  unsigned word[4];
  FLASHGPT_HD constexpr unsigned& operator[](int i) { return word[i]; }
  FLASHGPT_HD constexpr unsigned operator[](int i) const { return word[i]; }
};
FLASHGPT_HD constexpr bool operator==(const PhiloxBlock& a, const PhiloxBlock& b) {
  return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2] && a.word[3] == b.word[3];
}

FLASHGPT_HD constexpr PhiloxBlock philox(PhiloxBlock counter, unsigned long long key, int rounds = kPhiloxRounds) {
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
  for (int r = 0; r < rounds; ++r) {
    const unsigned long long p0 = 0xD2511F53ull * counter[0];
    const unsigned long long p1 = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<unsigned>(p1 >> 32) ^ counter[1] ^ k0, static_cast<unsigned>(p1),
               static_cast<unsigned>(p0 >> 32) ^ counter[3] ^ k1, static_cast<unsigned>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// What a stream of numbers is for; part of the counter, so that streams never meet.
enum class RandomStream : unsigned { kInit = 1, kShuffle = 2, kSampling = 3, kDropout = 4 };

FLASHGPT_HD constexpr PhiloxBlock philox(unsigned long long seed, RandomStream stream, unsigned id, unsigned long long index) {
  return philox({static_cast<unsigned>(index), static_cast<unsigned>(index >> 32), id, static_cast<unsigned>(stream)}, seed);
}

// Dropout of attention weights. The mask of query i and key j (counted from the start of their sequence) of head h of sequence b is a byte
// of a Philox block that 4 queries and 4 keys share:
//
//   a = 4 (i / 16) + (i % 8) / 2        b likewise of j: a block of 16 x 16 holds 4 x 4 groups
//   counter = (a, b, sequence * heads of all ranks + head, offset)      key = seed xor kDropoutKey      kDropoutRounds rounds
//   the weight is dropped when   byte (j % 2) + 2 (j % 16 / 8)   of word (i % 2) + 2 (i % 16 / 8)   is below the threshold, 256 p rounded
//   (1 to 255)
//
// In the fragments of mma and wgmma a thread has rows g, g + 8 and columns 2t, 2t + 1, 2t + 8, 2t + 9 of a 16 x 16 block: half of the bytes
// of one call, for scores and for their transpose alike. Kept weights are scaled by 256 / (256 - threshold), the inverse of the rate that
// the threshold realises.
inline constexpr int kDropoutRounds = 7;
inline constexpr unsigned long long kDropoutKey = 0x64726f706f757421ull;  // "dropout!": apart from streams of the same seed

struct Dropout {
  unsigned long long seed = 0;
  unsigned offset = 0;
  unsigned threshold = 0;  // 0: none
};

FLASHGPT_HD constexpr unsigned dropout_threshold(float p) { return static_cast<unsigned>(p * 256.0f + 0.5f); }
FLASHGPT_HD constexpr float dropout_scale(unsigned threshold) { return 256.0f / static_cast<float>(256u - threshold); }

// Group of a query or key, and its place in the group: a byte of a word (keys) or a word of the block (queries).
FLASHGPT_HD constexpr unsigned dropout_group(Int64 i) { return static_cast<unsigned>(4 * (i / 16) + i % 8 / 2); }
FLASHGPT_HD constexpr int dropout_place(Int64 i) { return static_cast<int>(i % 2 + 2 * (i % 16 / 8)); }

FLASHGPT_HD constexpr PhiloxBlock dropout_block(const Dropout& d, unsigned sequence_head, unsigned query_group, unsigned key_group) {
  return philox({query_group, key_group, sequence_head, d.offset}, d.seed ^ kDropoutKey, kDropoutRounds);
}

// One weight at a time: what kernels that share the blocks must agree with.
FLASHGPT_HD constexpr bool dropout_keeps(const Dropout& d, unsigned sequence_head, Int64 query, Int64 key) {
  const PhiloxBlock block = dropout_block(d, sequence_head, dropout_group(query), dropout_group(key));
  return (block[dropout_place(query)] >> (8 * dropout_place(key)) & 255u) >= d.threshold;
}

// (0, 1): never 0, so that its logarithm is finite; never 1.
FLASHGPT_HD constexpr double uniform(unsigned x) { return (static_cast<double>(x) + 0.5) * 0x1p-32; }

#ifndef __CUDACC_RTC__
struct TwoFloats {
  float value[2];
  constexpr float operator[](int i) const { return value[i]; }
  const float* begin() const { return value; }
  const float* end() const { return value + 2; }
};

// Two standard normal numbers from two uniform ones (Box & Muller, 1958).
inline TwoFloats normal(unsigned a, unsigned b) {
  const double r = std::sqrt(-2.0 * std::log(uniform(a)));
  const double angle = 2.0 * 3.14159265358979323846 * uniform(b);
  return {{static_cast<float>(r * std::cos(angle)), static_cast<float>(r * std::sin(angle))}};
}
#endif

}  // namespace flashgpt
