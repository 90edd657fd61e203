// From logits to the loss and, in their place, its gradient: one block a row.
#pragma once
#include "core/tile/block.cuh"
#include "ops/cuda/arguments.h"

namespace flashgpt::ops {

constexpr int kLossThreads = 512;

__global__ void __launch_bounds__(kLossThreads) cross_entropy(CrossEntropyArguments a) {
  const Int64 n = blockIdx.x;
  float* z = a.logits + n * a.vocabulary;
  const int target = a.targets[n];
  if (target < 0 || target >= a.vocabulary) {  // ignored; beyond the vocabulary: NaN, so that the step is skipped
    if (threadIdx.x == 0) a.losses[n] = target < 0 ? 0.0 : static_cast<double>(__int_as_float(0x7fc00000));
    if (a.gradient)
      for (Int64 v = threadIdx.x; v < a.vocabulary; v += kLossThreads) z[v] = 0.0f;
    return;
  }
  float most = -tile::infinity();
  for (Int64 v = threadIdx.x; v < a.vocabulary; v += kLossThreads) most = fmaxf(most, z[v]);
  most = tile::block_max<kLossThreads>(most);
  const float at_target = z[target];
  float part = 0;
  for (Int64 v = threadIdx.x; v < a.vocabulary; v += kLossThreads) part += expf(z[v] - most);
  const double total = tile::block_sum<kLossThreads>(static_cast<double>(part));
  if (threadIdx.x == 0) a.losses[n] = log(total) + static_cast<double>(most) - static_cast<double>(at_target);
  if (!a.gradient) return;
  const float scale = a.scalars->inv_targets * a.scalars->loss_scale, factor = static_cast<float>(scale / total);
  __syncthreads();  // z[target] has been read by all
  for (Int64 v = threadIdx.x; v < a.vocabulary; v += kLossThreads) z[v] = expf(z[v] - most) * factor - (v == target ? scale : 0.0f);
}

__global__ void __launch_bounds__(kLossThreads) sum_losses(SumLossesArguments a) {
  double total = 0;
  for (Int64 i = threadIdx.x; i < a.n; i += kLossThreads) {
    total += a.losses[i];
    if (a.out) a.out[i] = static_cast<float>(a.losses[i]);
  }
  total = tile::block_sum<kLossThreads>(total);
  if (threadIdx.x == 0) a.scalars->loss_sum += total;
}

}  // namespace flashgpt::ops
