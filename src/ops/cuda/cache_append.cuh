// New rows of k and v into their slots: one block a token.
#pragma once
#include "core/tile/types.cuh"
#include "ops/cuda/arguments.h"

namespace flashgpt::ops {

__global__ void __launch_bounds__(256) cache_append(CacheAppendArguments a) {
  const Int64 b = blockIdx.x / a.length, i = blockIdx.x % a.length, slot = a.starts[b] + i;
  if (i >= a.new_lengths[b] || slot < 0 || slot >= a.capacity) return;
  const float* k = a.qkv + (b * a.length + i) * a.qkv_stride + a.q_columns;
  const Int64 to = (b * a.capacity + slot) * a.row;
  for (Int64 c = threadIdx.x; c < a.row; c += 256) {
    a.k_cache[to + c] = k[c];
    a.v_cache[to + c] = k[a.row + c];
  }
}

}  // namespace flashgpt::ops
