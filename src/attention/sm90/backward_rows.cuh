// The kernels before and after the backward, one block of 256 threads a tile of 64 queries of one head:
//   backward_prepare  stats: lse * log2(e), -rowsum(dO O); zeroes the sums of dQ
//   backward_finish   dQ = scale * sum, from fp32 in fragment order to rows of 16 bits
#pragma once
#include "attention/sm90/backward_config.h"
#include "core/tile/barrier.cuh"
#include "core/tile/math.cuh"

namespace flashgpt::attention::sm90 {

using namespace tile;

constexpr int kRowThreads = 256;
constexpr int kChunk = 8;  // elements of 16 bits a thread moves at once

template <class E> DEVICE float dot2(uint32_t x, uint32_t y) {
  return fmaf(unpack_low<E>(x), unpack_low<E>(y), unpack_high<E>(x) * unpack_high<E>(y));
}

template <BackwardConfig C> __global__ void __launch_bounds__(kRowThreads) backward_prepare(const __grid_constant__ BackwardRowArgs a) {
  using E = Element<C.half>;
  constexpr int kLanes = C.head_dim / kChunk, kRows = kRowThreads / kLanes;
  const int64_t tile = blockIdx.x;
  const int m = tile % a.query_tiles, head = tile / a.query_tiles % a.heads, sequence = tile / a.query_tiles / a.heads;
  const int lane = threadIdx.x % kLanes;
  float* stats = a.stats + tile * kStats;
  wait_for_previous_kernel();
  launch_dependents();  // after the wait: the next kernel loads K and V before its own
#pragma unroll
  for (int r = threadIdx.x / kLanes; r < kQueryRows; r += kRows) {
    const int row = m * kQueryRows + r;
    float sum = 0, lse = infinity();
    if (row < a.sq) {
      const uint4 o = *reinterpret_cast<const uint4*>(a.o + sequence * a.o_strides.sequence + row * a.o_strides.row +
                                                      head * a.o_strides.head + lane * kChunk);
      const uint4 g = *reinterpret_cast<const uint4*>(a.dout + sequence * a.dout_strides.sequence + row * a.dout_strides.row +
                                                      head * a.dout_strides.head + lane * kChunk);
      sum = dot2<E>(o.x, g.x) + dot2<E>(o.y, g.y) + dot2<E>(o.z, g.z) + dot2<E>(o.w, g.w);
      lse = a.lse[tile / a.query_tiles * a.sq + row] * kLog2e;
    }
#pragma unroll
    for (int i = 1; i < kLanes; i *= 2) sum += __shfl_xor_sync(~0u, sum, i);
    if (lse == -infinity()) {
      lse = infinity();
      sum = 0;
    }
    if (lane == 0) {
      stats[r] = lse;
      stats[kStatsLse + r] = -sum;
    }
  }
  if (a.dq_sum) {
    float4* sums = reinterpret_cast<float4*>(a.dq_sum + tile * kQueryRows * C.head_dim);
#pragma unroll
    for (int i = 0; i < kQueryRows * C.head_dim / 4 / kRowThreads; ++i) sums[i * kRowThreads + threadIdx.x] = float4{0, 0, 0, 0};
  }
}

template <BackwardConfig C> __global__ void __launch_bounds__(kRowThreads) backward_finish(const __grid_constant__ BackwardRowArgs a) {
  using E = Element<C.half>;
  constexpr int D = C.head_dim, kRowWords = D / 2 + 4;  // the pad makes both sides free of bank conflicts
  __shared__ __align__(16) uint32_t rows[kQueryRows * kRowWords];
  const int64_t tile = blockIdx.x;
  const int m = tile % a.query_tiles, head = tile / a.query_tiles % a.heads, sequence = tile / a.query_tiles / a.heads;
  wait_for_previous_kernel();
  launch_dependents();
  const float4* sums = reinterpret_cast<const float4*>(a.dq_sum + tile * kQueryRows * D);
#pragma unroll
  for (int i = 0; i < kQueryRows * D / 4 / kRowThreads; ++i) {
    const int at = i * kRowThreads + threadIdx.x, piece = at / (kPiece / 4), j = at % (kPiece / 4) / kWarpGroup, t = at % kWarpGroup;
    const float4 v = sums[at];
    const FragmentPlace low = fragment_place(piece, t, 4 * j), high = fragment_place(piece, t, 4 * j + 2);
    rows[low.row * kRowWords + low.column / 2] = pack<E>(v.x * a.scale, v.y * a.scale);
    rows[high.row * kRowWords + high.column / 2] = pack<E>(v.z * a.scale, v.w * a.scale);
  }
  __syncthreads();
  constexpr int kLanes = D / kChunk;
  uint16_t* dq = a.dq + sequence * a.dq_strides.sequence + head * a.dq_strides.head;
#pragma unroll
  for (int i = 0; i < kQueryRows * kLanes / kRowThreads; ++i) {
    const int at = i * kRowThreads + threadIdx.x, r = at / kLanes, lane = at % kLanes, row = m * kQueryRows + r;
    if (row < a.sq)
      *reinterpret_cast<uint4*>(dq + row * a.dq_strides.row + lane * kChunk) =
          *reinterpret_cast<const uint4*>(rows + r * kRowWords + lane * 4);
  }
}

}  // namespace flashgpt::attention::sm90
