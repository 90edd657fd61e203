// The kernels that go through rows, before and after the ones with products.
#pragma once
#include "attention/sm80/tiles.cuh"
#include "core/tile/block.cuh"

namespace flashgpt::attention::sm80 {

// Of the backward, one warp a row and head: lse in powers of two, delta = rowsum(dout o) - dlse, and the sums of dq begin at zero.
template <Variant C> __global__ void __launch_bounds__(kRowThreads) prepare(const __grid_constant__ Arguments a) {
  using E = Element<C.half>;
  const Int64 work = (Int64(blockIdx.x) * kRowThreads + threadIdx.x) / kWarp;
  if (work >= a.total_q * a.heads) return;
  const Int64 h = work % a.heads, row = work / a.heads;
  const Int64 b = a.varlen ? 0 : row / a.max_q, i = a.varlen ? row : row % a.max_q, at = h * a.total_q + row;
  const unsigned short* dout = a.dout.at(b, i, h);
  float sum = 0;
  if constexpr (C.wide) {
    const float* o = a.wide_o.at(b, i, h);
    for (int c = lane_index(); c < a.v_head_dim; c += kWarp) sum += o[c] * unpack_low<E>(dout[c]);
  } else if constexpr (C.whole) {
    const unsigned short* o = a.o.at(b, i, h);
    for (int c = lane_index() * 2; c < a.v_head_dim; c += kWarp * 2) {
      const uint32_t x = *reinterpret_cast<const uint32_t*>(o + c), y = *reinterpret_cast<const uint32_t*>(dout + c);
      sum += unpack_low<E>(x) * unpack_low<E>(y) + unpack_high<E>(x) * unpack_high<E>(y);
    }
  } else {
    const unsigned short* o = a.o.at(b, i, h);
    for (int c = lane_index(); c < a.v_head_dim; c += kWarp) sum += unpack_low<E>(o[c]) * unpack_low<E>(dout[c]);
  }
  sum = warp_sum(sum);
  if (a.dq_sum)
    for (int c = lane_index(); c < C.dim; c += kWarp) a.dq_sum[at * C.dim + c] = 0.0f;
  if (lane_index() != 0) return;
  const float lse = *a.lse.at(b, i, h);
  a.lse2[at] = lse == -infinity() ? infinity() : lse * kLog2e;
  a.delta[at] = a.dlse.data ? sum - *a.dlse.at(b, i, h) : sum;
}

// dq from its sums, one warp a row and head; rows that no block added to are zeros.
template <Variant C> __global__ void __launch_bounds__(kRowThreads) finish(const __grid_constant__ Arguments a) {
  using E = Element<C.half>;
  const Int64 work = (Int64(blockIdx.x) * kRowThreads + threadIdx.x) / kWarp;
  if (work >= a.total_q * a.heads) return;
  const Int64 h = work % a.heads, row = work / a.heads;
  const float* sum = a.dq_sum + (h * a.total_q + row) * C.dim;
  unsigned short* dq = a.varlen ? a.dq.at(0, row, h) : a.dq.at(row / a.max_q, row % a.max_q, h);
  for (int c = lane_index() * 2; c < a.head_dim; c += kWarp * 2) {
    const uint32_t x = pack<E>(sum[c] * a.gradient_scale, sum[c + 1] * a.gradient_scale);
    if constexpr (C.whole) {
      *reinterpret_cast<uint32_t*>(dq + c) = x;
    } else {
      dq[c] = static_cast<unsigned short>(x);
      if (c + 1 < a.head_dim) dq[c + 1] = static_cast<unsigned short>(x >> 16);
    }
  }
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
