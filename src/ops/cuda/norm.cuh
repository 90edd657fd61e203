// Norms: one block a row, three passes of which the second and third hit the cache.
#pragma once
#include "core/tile/block.cuh"
#include "ops/cuda/column_sum.cuh"

namespace flashgpt::ops {

constexpr int kNormThreads = 256;

__global__ void __launch_bounds__(kNormThreads) add_norm(AddNormArguments a) {
  const Int64 n = blockIdx.x, columns = a.columns;
  const float *in = a.x + n * columns, *delta = a.delta ? a.delta + n * columns : nullptr;
  float* out_sum = a.sum ? a.sum + n * columns : nullptr;
  float total = 0;
  for (Int64 c = threadIdx.x; c < columns; c += kNormThreads) {
    const float s = delta ? in[c] + delta[c] : in[c];
    if (out_sum) out_sum[c] = s;
    total += a.layer_norm ? s : s * s;
  }
  if (out_sum) in = out_sum;
  const float inverse = 1.0f / static_cast<float>(columns);
  float centre = 0, variance = tile::block_sum<kNormThreads>(total) * inverse;
  if (a.layer_norm) {
    centre = variance;
    float squares = 0;
    for (Int64 c = threadIdx.x; c < columns; c += kNormThreads) squares += (in[c] - centre) * (in[c] - centre);
    variance = tile::block_sum<kNormThreads>(squares) * inverse;
  }
  const float rstd = 1.0f / sqrtf(variance + a.eps);
  if (threadIdx.x == 0) {
    if (a.mean) a.mean[n] = centre;
    if (a.rstd) a.rstd[n] = rstd;
  }
  for (Int64 c = threadIdx.x; c < columns; c += kNormThreads) {
    const float v = (in[c] - centre) * rstd * a.w[c];
    a.y[n * columns + c] = a.b ? v + a.b[c] : v;
  }
}

// With xhat = (x - mean) rstd and g = dy w:  dx += rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for RMSNorm.
__global__ void __launch_bounds__(kNormThreads) add_norm_grad(AddNormGradArguments a) {
  const Int64 n = blockIdx.x, columns = a.columns;
  const float *dy = a.dy + n * columns, *x = a.x + n * columns;
  const float mean = a.layer_norm ? a.mean[n] : 0.0f, rstd = a.rstd[n];
  float sum_g = 0, sum_gx = 0;
  for (Int64 c = threadIdx.x; c < columns; c += kNormThreads) {
    const float g = dy[c] * a.w[c];
    sum_g += g;
    sum_gx += g * ((x[c] - mean) * rstd);
  }
  const float inverse = 1.0f / static_cast<float>(columns);
  const float mean_gx = tile::block_sum<kNormThreads>(sum_gx) * inverse;
  const float mean_g = a.layer_norm ? tile::block_sum<kNormThreads>(sum_g) * inverse : 0.0f;
  for (Int64 c = threadIdx.x; c < columns; c += kNormThreads)
    a.dx[n * columns + c] += rstd * (dy[c] * a.w[c] - mean_g - (x[c] - mean) * rstd * mean_gx);
}

__global__ void __launch_bounds__(kColumnThreads) norm_dw_partials(AddNormGradArguments a) {
  column_partials(a.rows, a.columns, a.partial, [&](Int64 n, Int64 c) {
    const float mean = a.layer_norm ? a.mean[n] : 0.0f;
    return a.dy[n * a.columns + c] * ((a.x[n * a.columns + c] - mean) * a.rstd[n]);
  });
}

}  // namespace flashgpt::ops
