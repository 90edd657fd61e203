// score.h in vectors, in the units of the tiles: scores are logarithms to base 2, x log2(e), so that the softmax needs exp2 only.
//
// The scale is folded into Q: without softcap q' = q * scale * log2(e) and the product q'.k is the score; with softcap c,
// q' = q * scale / c and the score is c log2(e) tanh(q'.k). ALiBi subtracts slope * log2(e) * |distance|.
#pragma once
#include "attention/cpu/tile.h"
#include "attention/problem.h"

namespace flashgpt::attention::cpu {

// tanh: relative error at most 3e-7; saturates; NaN for NaN. Below 5/8 the odd polynomial of Cephes (Moshier), above by exp2.
template <int W> [[gnu::always_inline]] inline F<W> tanh_vec(const F<W>& x) {
  const F<W> zero{}, one = splat<W>(1.0f);
  const F<W> size = x < zero ? -x : x;
  const F<W> e = exp2_of<W>(size * splat<W>(-2.0f * kLog2e));
  const F<W> large = (one - e) / (one + e);
  const F<W> z = x * x;
  F<W> p = splat<W>(-5.70498872745e-3f);
  constexpr float kPoly[] = {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};
#pragma GCC unroll 4
  for (float c : kPoly) p = p * z + splat<W>(c);
  const F<W> small = x + x * z * p;
  const F<W> signed_large = x < zero ? -large : large;
  return size < splat<W>(0.625f) ? small : signed_large;
}

// What the lanes of a group need to turn products into scores and to know what they see. Lives in memory: one instance a group.
template <int W> struct LaneInfo {
  alignas(64) std::int32_t low[kGroup<W>];  // first and last key that the lane sees; low > high: none
  std::int32_t high[kGroup<W>];
  float position[kGroup<W>];          // of the query among the keys
  float slope[kGroup<W>];             // ALiBi, times log2(e)
  Index see_any_first, see_any_last;  // keys that some lane sees
  Index see_all_first, see_all_last;  // keys that all lanes (padding lanes aside) see
};

struct ScoreKind {
  float fold = 1;  // what q is multiplied with
  float cap = 0;   // softcap * log2(e); 0: none
  bool alibi = false;
  bool plain() const { return cap == 0 && !alibi; }
};

inline ScoreKind score_kind(const Problem& p) {
  ScoreKind k;
  k.alibi = p.alibi;
  k.cap = p.softcap * kLog2e;
  k.fold = p.softcap > 0 ? p.scale / p.softcap : p.scale * kLog2e;
  return k;
}

// Score of `key` for the lanes [n * W, (n + 1) * W); `slope` gets d score / d (q'.k) when softcap is on, in units of cap.
template <int W>
[[gnu::always_inline]] inline F<W> score_vec(const ScoreKind& kind, const LaneInfo<W>& lanes, int n, Index key, F<W> x, F<W>& derivative) {
  if (kind.cap > 0) {
    const F<W> t = tanh_vec<W>(x);
    derivative = splat<W>(1.0f) - t * t;
    x = splat<W>(kind.cap) * t;
  }
  if (kind.alibi) {
    const F<W> distance = splat<W>(static_cast<float>(key)) - load<W>(lanes.position + n * W);
    const F<W> size = distance < F<W>{} ? -distance : distance;
    x = x - load<W>(lanes.slope + n * W) * size;
  }
  return x;
}

// All ones where the lane sees the key.
template <int W> [[gnu::always_inline]] inline I<W> sees(const LaneInfo<W>& lanes, int n, Index key) {
  const I<W> k = I<W>{} + static_cast<std::int32_t>(key);
  I<W> low, high;
  __builtin_memcpy(&low, lanes.low + n * W, sizeof low);
  __builtin_memcpy(&high, lanes.high + n * W, sizeof high);
  return (k >= low) & (k <= high);
}

// Rows [first, first + rows) of the group's queries (see QueryRows). A lane past `rows` sees what the last row sees.
template <int W> inline void fill_lanes(LaneInfo<W>& out, const Problem& p, const Sequence& s, Index kv, Index first, Index rows) {
  constexpr Index kMost = INT32_MAX;
  const Index q_first = first / p.group, q_last = (first + rows - 1) / p.group + 1;
  const Range any_key = keys_of(p.mask, q_first, q_last, s.len_q, s.len_k), all = keys_of_all(p.mask, q_first, q_last, s.len_q, s.len_k);
  out.see_any_first = any_key.first;
  out.see_any_last = any_key.last;
  out.see_all_first = all.first;
  out.see_all_last = all.last;
  for (Index lane = 0; lane < kGroup<W>; ++lane) {
    const Index r = first + std::min(lane, rows - 1), i = r / p.group;
    const Range keys = keys_of(p.mask, i, i + 1, s.len_q, s.len_k);
    out.low[lane] = static_cast<std::int32_t>(std::min(keys.first, kMost));
    out.high[lane] = static_cast<std::int32_t>(std::max<Index>(keys.last - 1, -1));
    out.position[lane] = static_cast<float>(i + s.len_k - s.len_q);
    out.slope[lane] = p.alibi ? p.score(s.index, kv * p.group + r % p.group).slope * kLog2e : 0.0f;
  }
}

}  // namespace flashgpt::attention::cpu
