// Reductions over the threads of a block. The order depends on the block's size alone, so they give the same bits every time.
#pragma once
#include "core/tile/types.cuh"

namespace flashgpt::tile {

template <class T> DEVICE T warp_sum(T x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}
DEVICE float warp_max(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

// Of all Threads threads; each gets the result.
template <int Threads, class T> DEVICE T block_sum(T x) {
  __shared__ T parts[Threads / kWarp];
  x = warp_sum(x);
  __syncthreads();  // the reduction before this one has been read
  if (lane_index() == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  T total = 0;
#pragma unroll
  for (int i = 0; i < Threads / kWarp; ++i) total += parts[i];
  return total;
}
template <int Threads> DEVICE float block_max(float x) {
  __shared__ float parts[Threads / kWarp];
  x = warp_max(x);
  __syncthreads();
  if (lane_index() == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  float most = parts[0];
#pragma unroll
  for (int i = 1; i < Threads / kWarp; ++i) most = fmaxf(most, parts[i]);
  return most;
}

}  // namespace flashgpt::tile
