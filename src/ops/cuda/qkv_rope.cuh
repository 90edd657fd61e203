// Bias and rotation of packed rows of q, k, v. A thread does one pair of elements of a turned head, or one element that is not turned.
#pragma once
#include "core/tile/types.cuh"
#include "ops/cuda/arguments.h"

namespace flashgpt::ops {

constexpr int kRopeThreads = 256;

__global__ void __launch_bounds__(kRopeThreads) qkv_rope(QkvRopeArguments a) {
  const Int64 each = a.head_dim - a.half, turned = a.turned_heads * each;  // units of a head, of all heads of q and k
  const Int64 units = turned + a.columns - a.turned_heads * a.head_dim;
  const Int64 i = Int64(blockIdx.x) * kRopeThreads + threadIdx.x;
  if (i >= a.rows * units) return;
  const Int64 n = i / units, unit = i % units;
  float* row = a.qkv + n * a.columns;
  const auto biased = [&](Int64 c) { return a.bias ? row[c] + a.bias[c] : row[c]; };
  if (unit < turned && unit % each < a.half) {
    const Int64 j = unit % each, c = unit / each * a.head_dim + j;
    // Whole turns are taken off in double: long positions are exact, and the sine needs no slow path for large arguments.
    const double turns = a.positions[n] * static_cast<double>(a.inv_freq[j]) * 0.15915494309189535;
    float sine, cosine;
    sincospif(static_cast<float>(2 * a.sign * (turns - rint(turns))), &sine, &cosine);
    const float u = biased(c), v = biased(c + a.half);
    row[c] = u * cosine - v * sine;
    row[c + a.half] = v * cosine + u * sine;
  } else if (a.bias) {
    const Int64 c = unit < turned ? unit / each * a.head_dim + unit % each + a.half : unit - turned + a.turned_heads * a.head_dim;
    row[c] = biased(c);
  }
}

}  // namespace flashgpt::ops
