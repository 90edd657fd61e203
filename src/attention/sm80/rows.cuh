// The kernels that go through rows, before and after the ones with products.
#pragma once
#include "attention/sm80/tiles.cuh"
#include "core/tile/block.cuh"

namespace flashgpt::attention::sm80 {

// Row and head of a group of `Lanes` lanes; heads side by side.
struct RowWork {
  Int64 h, row, b, i;  // row: of all sequences
};
template <int Lanes> DEVICE bool find_row(const Arguments& a, RowWork& w) {
  const Int64 work = (Int64(blockIdx.x) * kRowThreads + threadIdx.x) / Lanes;
  w.h = work % a.heads, w.row = work / a.heads;
  w.b = a.varlen ? 0 : w.row / a.max_q, w.i = a.varlen ? w.row : w.row % a.max_q;
  return work < a.total_q * a.heads;
}

// Of the backward: lse in powers of two, delta = rowsum(dout o) - dlse.
template <Variant C> __global__ void __launch_bounds__(kRowThreads) prepare(const __grid_constant__ Arguments a) {
  using E = Element<C.half>;
  constexpr int kLanes = lanes_of(C.v_dim);
  RowWork w;
  const bool there = find_row<kLanes>(a, w);
  const int lane = threadIdx.x % kLanes, column = lane * 8;
  float sum = 0;
  if (there && column < a.v_head_dim) {
    const unsigned short* dout = a.dout.at(w.b, w.i, w.h) + column;
    if constexpr (C.whole && !C.wide) {
      const uint4 x = *reinterpret_cast<const uint4*>(a.o.at(w.b, w.i, w.h) + column), y = *reinterpret_cast<const uint4*>(dout);
      const auto add = [&](uint32_t u, uint32_t v) { sum += unpack_low<E>(u) * unpack_low<E>(v) + unpack_high<E>(u) * unpack_high<E>(v); };
      add(x.x, y.x), add(x.y, y.y), add(x.z, y.z), add(x.w, y.w);
    } else {
      for (int e = 0; e < 8 && column + e < a.v_head_dim; ++e)
        sum += (C.wide ? a.wide_o.at(w.b, w.i, w.h)[column + e] : unpack_low<E>(a.o.at(w.b, w.i, w.h)[column + e])) * unpack_low<E>(dout[e]);
    }
  }
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (!there || lane != 0) return;
  const Int64 at = w.h * a.total_q + w.row;
  const float lse = *a.lse.at(w.b, w.i, w.h);
  a.lse2[at] = lse == -infinity() ? infinity() : lse * kLog2e;
  a.delta[at] = a.dlse.data ? sum - *a.dlse.at(w.b, w.i, w.h) : sum;
}

// dq from its sums; rows that no block added to are zeros.
template <Variant C> __global__ void __launch_bounds__(kRowThreads) finish(const __grid_constant__ Arguments a) {
  using E = Element<C.half>;
  constexpr int kLanes = lanes_of(C.dim);
  RowWork w;
  const int column = threadIdx.x % kLanes * 8;
  if (!find_row<kLanes>(a, w) || column >= a.head_dim) return;
  float x[8];
  if (a.varlen) {
    const float4* sum = reinterpret_cast<const float4*>(a.dq_sum + (w.h * a.total_q + w.row) * C.dim + column);
    const float4 low = sum[0], high = sum[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w, x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
  } else {
    const float* piece = a.dq_sum + ((w.b * a.heads + w.h) * sum_rows(a.max_q) + w.i / 16 * 16) * C.dim + column * 16;
    const int g = w.i % 8, half = w.i % 16 / 8;
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] = piece[fragment_at(g * 4 + e / 2, 2 * half + e % 2)];
  }
  uint32_t v[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) v[e] = pack<E>(x[2 * e] * a.gradient_scale, x[2 * e + 1] * a.gradient_scale);
  unsigned short* dq = a.dq.at(w.b, w.i, w.h) + column;
  if constexpr (C.whole) {
    store_global16(dq, v);
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (column + e < a.head_dim) dq[e] = static_cast<unsigned short>(v[e / 2] >> (16 * (e % 2)));
  }
}

// dsink[h] -= sum over queries of exp(sink - lse) delta; a block a head, always in the same order.
__global__ void __launch_bounds__(kRowThreads) sink_gradient(const __grid_constant__ Arguments a) {
  const Int64 h = blockIdx.x;
  const float sink = a.sinks[h] * kLog2e;
  float sum = 0;
  for (Int64 i = threadIdx.x; i < a.total_q; i += kRowThreads) {
    const float lse2 = a.lse2[h * a.total_q + i];
    if (lse2 != infinity()) sum += ex2(sink - lse2) * a.delta[h * a.total_q + i];  // infinity: a row that is not in use
  }
  sum = block_sum<kRowThreads>(sum);
  if (threadIdx.x == 0) a.dsink[h] -= sum;
}

// Tokens behind the last sequence belong to none: zeros, and lse -inf.
__global__ void __launch_bounds__(64) clear_tail(TailArguments a) {
  const Int64 row = blockIdx.x;
  if (row < a.cu[a.batch]) return;
  for (Int64 i = threadIdx.x; i < a.heads * a.columns; i += 64) {
    if (a.rows.data) a.rows.at(0, row, i / a.columns)[i % a.columns] = 0;
    if (a.wide.data) a.wide.at(0, row, i / a.columns)[i % a.columns] = 0.0f;
  }
  for (Int64 h = threadIdx.x; a.lse.data && h < a.heads; h += 64) *a.lse.at(0, row, h) = -infinity();
}

}  // namespace flashgpt::attention::sm80
