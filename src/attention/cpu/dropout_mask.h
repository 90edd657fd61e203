// Which weights dropout keeps, for the lanes of a group and the keys of a block (core/philox.h says which). A Philox block serves 4 queries
// and 4 keys; here every lane computes the block of its own query, for four keys at a time. The lanes of one block do the same work, but
// none waits for another, lanes may be of any heads, and nothing is gathered or scattered.
#pragma once
#include "attention/cpu/score_vec.h"
#include "core/philox.h"

namespace flashgpt::attention::cpu {

template <int W> struct DropoutLanes {
  alignas(64) unsigned query_group[kGroup<W>];
  unsigned sequence_head[kGroup<W>];
  std::int32_t place[kGroup<W>];  // of the query in its group

  // Lanes are rows [first, first + rows) of the queries (QueryRows); those behind repeat the last.
  void fill(const Problem& p, const Sequence& s, Index kv, Index first, Index rows) {
    for (Index lane = 0; lane < kGroup<W>; ++lane) {
      const Index r = first + std::min(lane, rows - 1), i = r / p.group;
      query_group[lane] = dropout_group(i);
      sequence_head[lane] = p.sequence_head(s.index, kv * p.group + r % p.group);
      place[lane] = dropout_place(i);
    }
  }
};

template <int W> struct Wide { typedef std::uint64_t type __attribute__((vector_size(W * 4))); };

// The low halves of 64-bit lanes, multiplied.
template <int W>
[[gnu::always_inline]] inline typename Wide<W>::type multiply_low(const typename Wide<W>::type& a, const typename Wide<W>::type& b) {
  typename Wide<W>::type r;
  if constexpr (W == 4) {
    r = a;
    asm("pmuludq %1, %0" : "+x"(r) : "x"(b));
  } else {
    asm("vpmuludq %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
  }
  return r;
}

// High and low words of x * factor.
template <int W> [[gnu::always_inline]] inline void multiply_words(const typename Unsigned<W>::type& x, unsigned factor,
                                                                   typename Unsigned<W>::type& high, typename Unsigned<W>::type& low) {
  using U = typename Unsigned<W>::type;
  using L = typename Wide<W>::type;
  const L f = L{} + factor, all = reinterpret_cast<L>(x), low_half = L{} + 0xffffffffull;
  const L even = multiply_low<W>(all, f), odd = multiply_low<W>(all >> 32, f);
  low = reinterpret_cast<U>((even & low_half) | (odd << 32));
  high = reinterpret_cast<U>((even >> 32) | (odd & ~low_half));
}

// keep[key][lane] = all ones or zero for keys [first, last) of a block that begins at key0 of the sequence.
struct FillDropout {
  template <int W> [[gnu::always_inline]] static void run(std::int32_t* keep, const DropoutLanes<W>* lanes, const Dropout* d, Index key0,
                                                          Index first, Index last) {
    using U = typename Unsigned<W>::type;
    const Index begin = key0 + first, end = key0 + last;
    const I<W> threshold = I<W>{} + static_cast<std::int32_t>(d->threshold);
    for (int n = 0; n < 2; ++n) {
      U group, head;
      I<W> place;
      __builtin_memcpy(&group, lanes->query_group + n * W, sizeof group);
      __builtin_memcpy(&head, lanes->sequence_head + n * W, sizeof head);
      __builtin_memcpy(&place, lanes->place + n * W, sizeof place);
      for (Index block = begin / 16 * 16; block < end; block += 16)
        for (Index b = 0; b < 4; ++b) {
          const Index pair = block + 2 * b;  // keys pair, pair + 1, pair + 8, pair + 9
          if (pair + 9 < begin || pair >= end) continue;
          U c0 = group, c1 = U{} + dropout_group(pair), c2 = head, c3 = U{} + d->offset;
          const unsigned long long key = d->seed ^ kDropoutKey;
          unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
#pragma GCC unroll 7
          for (int r = 0; r < kDropoutRounds; ++r) {  // philox()
            U high0, low0, high1, low1;
            multiply_words<W>(c0, 0xD2511F53u, high0, low0);
            multiply_words<W>(c2, 0xCD9E8D57u, high1, low1);
            c0 = high1 ^ c1 ^ (U{} + k0);
            c1 = low1;
            c2 = high0 ^ c3 ^ (U{} + k1);
            c3 = low0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
          }
          const U low_half = place == 0 ? c0 : c1, high_half = place == 2 ? c2 : c3;
          const U word = place < 2 ? low_half : high_half;
#pragma GCC unroll 4
          for (int c = 0; c < 4; ++c) {
            const Index at = pair + (c & 1) + 8 * (c >> 1);
            if (at < begin || at >= end) continue;
            const I<W> byte = reinterpret_cast<I<W>>(word >> (8 * c) & 255u), kept = byte >= threshold;
            __builtin_memcpy(keep + (at - key0) * kGroup<W> + n * W, &kept, sizeof kept);
          }
        }
    }
  }
};

// x[key][lane] = 0 where dropped.
struct DropWeights {
  template <int W> [[gnu::always_inline]] static void run(float* x, Index x_step, const std::int32_t* keep, Index first, Index last) {
    for (Index j = first; j < last; ++j)
      for (int n = 0; n < 2; ++n) {
        I<W> mask;
        __builtin_memcpy(&mask, keep + j * kGroup<W> + n * W, sizeof mask);
        float* at = x + j * x_step + n * W;
        store<W>(at, mask ? load<W>(at) : F<W>{});
      }
  }
};

}  // namespace flashgpt::attention::cpu
