// Online softmax of a warpgroup's 64 rows on accumulators in registers, mostly without the row maximum.
//
// State of a row: m, an exponent of 2, and l = sum of 2^(s c - m) over the keys so far, this thread's part.
//
//   with the maximum      m = max(m, max(s) c); needed until a row has seen a key, and under masks. Not rounded: a row with one key
//                         gets its value to the bit, and the backward finds P (dP - delta) = 0.
//   without               P = 2^(s c - m) with the m there is. The thread's sum of P, which l needs anyway, bounds its P from above:
//                         above 2^10, P, l and O are scaled down by the power of two of the sum, which is exact. Where the sum is too large
//                         for that (a score 2^100 above all before), S is computed again from shared memory and taken with the maximum.
#pragma once
#include "core/tile/math.cuh"
#include "core/tile/wgmma.cuh"

namespace flashgpt::attention::sm90 {

using namespace tile;

constexpr float kLargeSum = 1024.0f, kLostSum = 0x1p100f;

// Rows r = 0, 1 of a thread: elements 4 j + 2 r + {0, 1} of an accumulator.
struct SoftmaxRows {
  float m[2], l[2], alpha[2];  // alpha: what O has still to be multiplied by
  DEVICE void start() {
    m[0] = m[1] = -infinity();
    l[0] = l[1] = 0;
    alpha[0] = alpha[1] = 1;
  }
};

template <int H> DEVICE void softmax_with_maximum(float (&s)[H], SoftmaxRows& rows, float c) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float x = s[2 * r], y = s[2 * r + 1];
#pragma unroll
    for (int j = 4; j < H; j += 4) {
      x = fmaxf(x, s[j + 2 * r]);
      y = fmaxf(y, s[j + 2 * r + 1]);
    }
    const float top = quad_max(fmaxf(x, y)) * c, most = fmaxf(rows.m[r], top);
    const float base = most == -infinity() ? 0.0f : most;  // no key seen yet: every P becomes 0
    rows.alpha[r] = ex2(rows.m[r] - base);
    rows.m[r] = most;
    float sum[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < H; j += 4)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& p = s[j + 2 * r + e];
        p = ex2(fmaf(p, c, -base));
        sum[e] += p;
      }
    rows.l[r] = rows.l[r] * rows.alpha[r] + (sum[0] + sum[1]);
  }
}

// False: some row's P is lost, nothing is changed but s. `scale`: whether O has to be multiplied by alpha.
template <int H> DEVICE bool softmax_without_maximum(float (&s)[H], SoftmaxRows& rows, float c, bool& scale) {
  float part[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < H; j += 4)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& p = s[j + 2 * r + e];
        p = ex2(fmaf(p, c, -rows.m[r]));
        sum[e] += p;
      }
    part[r] = sum[0] + sum[1];
  }
  scale = __any_sync(~0u, fmaxf(part[0], part[1]) > kLargeSum);
  if (scale) {
    const float row[2] = {quad_max(part[0]), quad_max(part[1])};
    if (__any_sync(~0u, fmaxf(row[0], row[1]) > kLostSum)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int k = max((__float_as_int(row[r]) >> 23) - 127, 0);
      const float alpha = __int_as_float((127 - k) << 23);
      rows.alpha[r] = alpha;
      rows.m[r] += static_cast<float>(k);
      part[r] *= alpha;
      rows.l[r] *= alpha;
#pragma unroll
      for (int j = 0; j < H; j += 4) {
        s[j + 2 * r] *= alpha;
        s[j + 2 * r + 1] *= alpha;
      }
    }
  }
  rows.l[0] += part[0];
  rows.l[1] += part[1];
  return true;
}

// S of this warp's 16 rows once more, by the warp alone: Q [64 x Depth] and K [N x Depth] are swizzled tiles, `q` the warpgroup's.
template <class E, int Depth, int N> DEVICE void scores_again(float (&s)[N / 2], uint32_t q, uint32_t k) {
  const int lane = lane_index(), warp_rows = threadIdx.x % kWarpGroup / kWarp * 16 * kSwizzleRowBytes, low = lane % 8;
  const uint32_t rows_q = q + warp_rows + lane % 16 * kSwizzleRowBytes, rows_k = k + low * kSwizzleRowBytes;
  fill(s, 0.0f);
#pragma unroll 1
  for (int d = 0; d < Depth; d += kProductK) {  // pieces of 8 columns: d / 8 and the next
    const int piece = d % kSwizzleColumns / 8;
    const uint32_t at_k =
        rows_k + d / kSwizzleColumns * N * kSwizzleRowBytes + ((piece + lane / 8 % 2) ^ low) * 16 + lane / 16 * 8 * kSwizzleRowBytes;
    uint32_t a[4];
    ldmatrix4(a, rows_q + d / kSwizzleColumns * 64 * kSwizzleRowBytes + ((piece + lane / 16) ^ low) * 16);
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t b[4];
      ldmatrix4(b, at_k + n * kSwizzleRowBytes);
      mma_m16n8k16<E>(&s[n / 2], a, b[0], b[1]);
      mma_m16n8k16<E>(&s[n / 2 + 4], a, b[2], b[3]);
    }
  }
}

template <int H> DEVICE void multiply_rows(float (&o)[H], const float (&alpha)[2]) {
#pragma unroll
  for (int j = 0; j < H; ++j) o[j] *= alpha[j / 2 % 2];
}

}  // namespace flashgpt::attention::sm90
