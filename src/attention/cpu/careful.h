// Products where one factor may hold a NaN or an infinity and the weight is zero because the pair is masked or dropped: such pairs are left
// out instead of multiplied. One pair at a time, in the order of the tiles, so that what is
// finite gets the same bits; only blocks that are not finite come here.
#pragma once
#include "attention/cpu/score_vec.h"

namespace flashgpt::attention::cpu {

// keep: what dropout keeps, [key][lane] all ones or zero; null: all.
template <int W> [[gnu::always_inline]] inline I<W> counts(const LaneInfo<W>& lanes, int n, Index key, const std::int32_t* keep) {
  I<W> mask = sees<W>(lanes, n, key);
  if (keep) {
    I<W> k;
    __builtin_memcpy(&k, keep + n * W, sizeof k);
    mask &= k;
  }
  return mask;
}

// AddTransposed over keys [first, last) of a block: c[row][lane] += sum over keys of a[key][row] * b[key][lane].
struct AddTransposedSeen {
  template <int W> [[gnu::always_inline]] static void run(float* c, Index rows, const float* a, Index a_step, const float* b, Index b_step,
                                                          Index first, Index last, Index key0, const LaneInfo<W>* lanes,
                                                          const std::int32_t* keep) {
    for (Index j = first; j < last; ++j)
      for (int n = 0; n < 2; ++n) {
        const I<W> mask = counts<W>(*lanes, n, key0 + j, keep ? keep + j * kGroup<W> : nullptr);
        if (!any<W>(mask)) continue;
        const F<W> weight = load<W>(b + j * b_step + n * W);
        for (Index r = 0; r < rows; ++r) {
          float* to = c + r * kGroup<W> + n * W;
          F<W> sum = load<W>(to);
          fma<W>(sum, splat<W>(a[j * a_step + r]), weight);
          store<W>(to, mask ? sum : load<W>(to));
        }
      }
  }
};

// AddOuter of one group of rows: dst[key][column] += sum over its lanes of x[key][lane] * y[lane][column].
struct AddOuterSeen {
  template <int W> [[gnu::always_inline]] static void run(float* dst, Index stride, Index columns, const float* x, Index x_step,
                                                          const float* y, Index first, Index last, Index key0, const LaneInfo<W>* lanes,
                                                          const std::int32_t* keep) {
    for (Index j = first; j < last; ++j)
      for (int n = 0; n < 2; ++n) {
        const I<W> mask = counts<W>(*lanes, n, key0 + j, keep ? keep + j * kGroup<W> : nullptr);
        for (int lane = 0; lane < W; ++lane) {
          if (mask[lane] == 0) continue;
          const float weight = x[j * x_step + n * W + lane];
          const float* from = y + (n * W + lane) * stride;
          for (Index c = 0; c < columns; c += W) {
            float* to = dst + j * stride + c;
            F<W> sum = load<W>(to);
            fma<W>(sum, splat<W>(weight), load<W>(from + c));
            store<W>(to, sum);
          }
        }
      }
  }
};

}  // namespace flashgpt::attention::cpu
