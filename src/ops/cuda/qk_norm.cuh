// Norms of query and key heads: one warp a head of a row.
#pragma once
#include "core/tile/block.cuh"
#include "ops/cuda/column_sum.cuh"

namespace flashgpt::ops {

constexpr int kHeadThreads = 256;

struct HeadOfRow {
  Int64 n, h;
};
DEVICE HeadOfRow head_of_warp(Int64 heads) {
  const Int64 item = (Int64(blockIdx.x) * kHeadThreads + threadIdx.x) / tile::kWarp;
  return {item / heads, item % heads};
}

__global__ void __launch_bounds__(kHeadThreads) qk_norm(QkNormArguments a) {
  const Int64 normed = a.heads + a.kv_heads;
  const auto [n, h] = head_of_warp(normed);
  if (n >= a.rows) return;
  float* row = a.qkv + n * a.columns + h * a.head_dim;
  const float* w = h < a.heads ? a.q_weight : a.k_weight;
  float squares = 0;
  for (Int64 c = tile::lane_index(); c < a.head_dim; c += tile::kWarp) squares += row[c] * row[c];
  const float rstd = 1.0f / sqrtf(tile::warp_sum(squares) / static_cast<float>(a.head_dim) + a.eps);
  if (a.rstd && tile::lane_index() == 0) a.rstd[n * normed + h] = rstd;
  for (Int64 c = tile::lane_index(); c < a.head_dim; c += tile::kWarp) {
    if (a.x) a.x[(n * normed + h) * a.head_dim + c] = row[c];
    row[c] = row[c] * rstd * w[c];
  }
}

// With xhat = x rstd and g = dy w:  dx = rstd (g - xhat mean(g xhat)).
__global__ void __launch_bounds__(kHeadThreads) qk_norm_grad(QkNormGradArguments a) {
  const Int64 normed = a.heads + a.kv_heads;
  const auto [n, h] = head_of_warp(normed);
  if (n >= a.rows) return;
  float* dy = a.dqkv + n * a.columns + h * a.head_dim;
  const float *x = a.x + (n * normed + h) * a.head_dim, *w = h < a.heads ? a.q_weight : a.k_weight;
  const float rstd = a.rstd[n * normed + h];
  float sum = 0;
  for (Int64 c = tile::lane_index(); c < a.head_dim; c += tile::kWarp) sum += dy[c] * w[c] * x[c] * rstd;
  const float mean = tile::warp_sum(sum) / static_cast<float>(a.head_dim);
  for (Int64 c = tile::lane_index(); c < a.head_dim; c += tile::kWarp) dy[c] = rstd * (dy[c] * w[c] - x[c] * rstd * mean);
}

// Of dy xhat, over the rows and the heads that share a weight.
__global__ void __launch_bounds__(kColumnThreads) qk_norm_dw_partials(QkNormGradArguments a) {
  const Int64 normed = a.heads + a.kv_heads;
  column_partials(a.rows * a.weight_heads, a.head_dim, a.partial, [&](Int64 item, Int64 c) {
    const Int64 n = item / a.weight_heads, h = a.first_head + item % a.weight_heads;
    return a.dqkv[n * a.columns + h * a.head_dim + c] * a.x[(n * normed + h) * a.head_dim + c] * a.rstd[n * normed + h];
  });
}

}  // namespace flashgpt::ops
