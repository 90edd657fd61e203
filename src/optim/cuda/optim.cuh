// The optimizer's kernels. Nothing changes when the step is skipped.
#pragma once
#include "core/tile/block.cuh"
#include "optim/cuda/arguments.h"

namespace flashgpt::optim {

// ---- norm

__global__ void __launch_bounds__(kThreads) sum_squares(SumSquaresArguments a) {
  const Int64 first = Int64(blockIdx.x) * kElementsOfBlock, end = first + kElementsOfBlock, last = end < a.n ? end : a.n;
  double total = 0;
  for (Int64 i = first + threadIdx.x; i < last; i += kThreads) total += static_cast<double>(a.g[i]) * static_cast<double>(a.g[i]);
  total = tile::block_sum<kThreads>(total);
  if (threadIdx.x == 0) a.partial[blockIdx.x] = total;
}

DEVICE double sum_of(const double* x, Int64 n) {  // by one block, the same for all threads
  double total = 0;
  for (Int64 i = threadIdx.x; i < n; i += kThreads) total += x[i];
  return tile::block_sum<kThreads>(total);
}

__global__ void __launch_bounds__(kThreads) add_squares(SumSquaresArguments a) {
  const double total = sum_of(a.partial, a.blocks);
  if (threadIdx.x == 0) a.scalars->norm_sq += total;
}

__global__ void finish_norm(StepScalars* s) {
  const double norm = sqrt(s->norm_sq) / s->loss_scale;
  s->grad_norm = static_cast<float>(norm);
  s->skip = isfinite(s->loss_sum) && isfinite(s->grad_norm) ? 0 : 1;
  const double clip = s->max_norm > 0 && norm > s->max_norm ? s->max_norm / norm : 1.0;
  s->grad_scale = s->skip ? 0.0f : static_cast<float>(clip / s->loss_scale);
}

// ---- AdamW

__global__ void __launch_bounds__(kThreads) adamw(AdamWArguments a) {
  const StepScalars& s = *a.scalars;
  if (s.skip) return;
  __shared__ float inverse[2];
  if (threadIdx.x < 2) {
    const double t = s.step > 1 ? s.step : 1;
    inverse[threadIdx.x] = static_cast<float>(1.0 / (1.0 - pow(static_cast<double>(threadIdx.x ? a.beta2 : a.beta1), t)));
  }
  __syncthreads();
  const Int64 first = Int64(blockIdx.x) * 4 * kThreads;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const Int64 i = first + k * kThreads + threadIdx.x;
    if (i >= a.n) return;
    const float g = a.g[i] * s.grad_scale, w = a.w[i];
    const float m = a.beta1 * a.m[i] + (1 - a.beta1) * g, v = a.beta2 * a.v[i] + (1 - a.beta2) * g * g;
    a.m[i] = m;
    a.v[i] = v;
    a.w[i] = w - s.learning_rate * (m * inverse[0] / (sqrtf(v * inverse[1]) + a.eps) + a.weight_decay * w);
  }
}

// ---- Adafactor: row and column means of g^2, then the sums that the step's size needs, then the update.

DEVICE float beta2_of(const AdafactorArguments& a) {
  const double t = a.scalars->step > 1 ? a.scalars->step : 1;
  return static_cast<float>(1.0 - pow(t, -static_cast<double>(a.decay_rate)));
}
// At the first step beta2 is 0, and whatever the state was is forgotten.
DEVICE float moment(float beta2, float old, float now) { return (beta2 > 0 ? beta2 * old : 0.0f) + (1 - beta2) * now; }
DEVICE float gradient(const AdafactorArguments& a, Int64 i) { return a.g[i] * a.scalars->grad_scale; }

// One block a row.
__global__ void __launch_bounds__(kThreads) adafactor_rows(AdafactorArguments a) {
  if (a.scalars->skip) return;
  const Int64 r = blockIdx.x;
  float total = 0;
  for (Int64 c = threadIdx.x; c < a.columns; c += kThreads) {
    const float g = gradient(a, r * a.columns + c);
    total += g * g + a.eps1;
  }
  const float mean = tile::block_sum<kThreads>(total) / static_cast<float>(a.columns);
  if (threadIdx.x) return;
  const float beta2 = beta2_of(a);
  a.row[r] = moment(beta2, a.row[r], mean);
}

__global__ void __launch_bounds__(kThreads) adafactor_column_partials(AdafactorArguments a) {
  if (a.scalars->skip) return;
  const Int64 column_blocks = (a.columns + kThreads - 1) / kThreads;
  const Int64 block = blockIdx.x / column_blocks, c = blockIdx.x % column_blocks * kThreads + threadIdx.x;
  if (c >= a.columns) return;
  const Int64 first = block * kRowsOfBlock, last = first + kRowsOfBlock < a.rows ? first + kRowsOfBlock : a.rows;
  float total = 0;
  for (Int64 r = first; r < last; ++r) {
    const float g = gradient(a, r * a.columns + c);
    total += g * g;
  }
  a.partial[block * a.columns + c] = total;
}

__global__ void __launch_bounds__(kThreads) adafactor_columns(AdafactorArguments a) {
  if (a.scalars->skip) return;
  const Int64 c = Int64(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= a.columns) return;
  double total = 0;
  for (Int64 b = 0; b < a.row_blocks; ++b) total += a.partial[b * a.columns + c];
  const float beta2 = beta2_of(a), mean = static_cast<float>(total / static_cast<double>(a.rows)) + a.eps1;
  a.col[c] = moment(beta2, a.col[c], mean);
}

__global__ void __launch_bounds__(kThreads) adafactor_row_mean(AdafactorArguments a) {
  double total = 0;
  for (Int64 r = threadIdx.x; r < a.rows; r += kThreads) total += a.row[r];
  total = tile::block_sum<kThreads>(total);
  if (threadIdx.x == 0) *a.row_mean = total / static_cast<double>(a.rows);
}

DEVICE float raw_update(const AdafactorArguments& a, Int64 i, float row_mean) {  // g / sqrt(second moment)
  const float u = gradient(a, i) * rsqrtf(a.col[i % a.columns]);
  return a.row ? u * rsqrtf(a.row[i / a.columns] / row_mean) : u;  // the product of the moments may be too small for a float
}

__global__ void __launch_bounds__(kThreads) adafactor_sums(AdafactorArguments a) {
  if (a.scalars->skip) return;
  const float row_mean = a.row ? static_cast<float>(*a.row_mean) : 1.0f;
  const Int64 n = a.rows * a.columns, first = Int64(blockIdx.x) * kElementsOfBlock, end = first + kElementsOfBlock,
              last = end < n ? end : n;
  double w_total = 0, u_total = 0;
  for (Int64 i = first + threadIdx.x; i < last; i += kThreads) {
    const double w = a.w[i], u = raw_update(a, i, row_mean);
    w_total += w * w;
    u_total += u * u;
  }
  w_total = tile::block_sum<kThreads>(w_total);
  u_total = tile::block_sum<kThreads>(u_total);
  if (threadIdx.x == 0) {
    a.w_sum[blockIdx.x] = w_total;
    a.u_sum[blockIdx.x] = u_total;
  }
}

__global__ void __launch_bounds__(kThreads) adafactor_update(AdafactorArguments a) {
  if (a.scalars->skip) return;
  const float row_mean = a.row ? static_cast<float>(*a.row_mean) : 1.0f;
  const double squares_of_w = sum_of(a.w_sum, a.sum_blocks), squares_of_u = sum_of(a.u_sum, a.sum_blocks);
  const Int64 n = a.rows * a.columns, first = Int64(blockIdx.x) * kElementsOfBlock, end = first + kElementsOfBlock,
              last = end < n ? end : n;
  double rate = a.scalars->learning_rate;
  if (a.relative_step) rate *= fmax(static_cast<double>(a.eps2), sqrt(squares_of_w / static_cast<double>(n)));
  const double excess = sqrt(squares_of_u / static_cast<double>(n)) / a.clip_threshold;
  const float update = static_cast<float>(rate / fmax(1.0, excess)), decay = static_cast<float>(rate * a.weight_decay);
  for (Int64 i = first + threadIdx.x; i < last; i += kThreads) {
    const float w = a.w[i];
    a.w[i] = w - update * raw_update(a, i, row_mean) - decay * w;
  }
}

}  // namespace flashgpt::optim
