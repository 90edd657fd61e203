// Norms on the CPU: a row is read from memory once, its two or three passes run in the L1 cache; the gradient fuses dx, dw and db.
#include "ops/add_norm.h"

#include <cmath>

#include "core/cpu/simd.h"
#include "ops/check.h"
#include "ops/cpu/token_sum.h"

namespace flashgpt {
namespace {

using namespace simd;
using Index = std::int64_t;

// A row is read from memory once and from the L1 cache after that: its sum, its variance about the mean, its output.
struct Forward {
  float *y, *sum, *mean, *rstd;
  const float *x, *delta, *w, *b;
  Index columns;
  float eps;
  bool layer_norm;

  template <int W> [[gnu::always_inline]] void row(Index n) const {
    const float* in = x + n * columns;
    Vec<W> total = splat<W>(0.0f);
    if (delta || sum) {
      const float* more = delta ? delta + n * columns : nullptr;
      float* out = sum ? sum + n * columns : nullptr;
      for (Index c = 0; c < columns; c += kLanes) {
        Vec<W> s = load_upto<W>(in + c, columns - c);
        if (more) s = s + load_upto<W>(more + c, columns - c);
        store_upto<W>(out + c, s, columns - c);
        total = total + (layer_norm ? s : s * s);
      }
      in = out;
    } else {
      for (Index c = 0; c < columns; c += kLanes) {
        const Vec<W> s = load_upto<W>(in + c, columns - c);
        total = total + (layer_norm ? s : s * s);
      }
    }
    const float inverse = 1.0f / static_cast<float>(columns);
    float centre = 0.0f, variance = simd::sum(total) * inverse;
    if (layer_norm) {
      centre = variance;
      const Vec<W> m = splat<W>(centre);
      Vec<W> squares = splat<W>(0.0f);
      for (Index c = 0; c < columns; c += kLanes) {
        const Vec<W> d = load_upto<W>(in + c, columns - c, centre) - m;
        squares = squares + d * d;
      }
      variance = simd::sum(squares) * inverse;
    }
    const float scale = 1.0f / std::sqrt(variance + eps);
    if (mean) mean[n] = centre;
    if (rstd) rstd[n] = scale;
    float* out = y + n * columns;
    const Vec<W> m = splat<W>(centre), r = splat<W>(scale);
    for (Index c = 0; c < columns; c += kLanes) {
      Vec<W> v = (load_upto<W>(in + c, columns - c) - m) * r * load_upto<W>(w + c, columns - c);
      if (b) v = v + load_upto<W>(b + c, columns - c);
      store_upto<W>(out + c, v, columns - c);
    }
  }

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    for (Index n = first; n < last; ++n) row<W>(n);
  }
};

// With xhat = (x - mean) rstd and g = dy w:  dx += rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for RMSNorm.
struct Backward {
  float *dx, *partial;
  const float *dy, *x, *w, *mean, *rstd;
  Index columns, stride;  // stride: floats of partial a block; dw first, db behind it
  bool layer_norm, want_dw, want_db;

  template <int W> [[gnu::always_inline]] void run(Index block, Index first, Index last) const {
    float* dw = partial + block * stride;
    float* db = dw + (want_dw ? columns : 0);
    for (Index i = 0; i < stride; ++i) dw[i] = 0.0f;
    const float inverse = 1.0f / static_cast<float>(columns);
    for (Index n = first; n < last; ++n) {
      const float *d = dy + n * columns, *in = x + n * columns;
      const Vec<W> m = splat<W>(layer_norm ? mean[n] : 0.0f), r = splat<W>(rstd[n]);
      Vec<W> sum_g = splat<W>(0.0f), sum_gx = splat<W>(0.0f);
      for (Index c = 0; c < columns; c += kLanes) {
        const Index left = columns - c;
        const Vec<W> grad = load_upto<W>(d + c, left), xhat = (load_upto<W>(in + c, left) - m) * r;
        const Vec<W> g = grad * load_upto<W>(w + c, left);
        sum_g = sum_g + g;
        sum_gx = sum_gx + g * xhat;
        if (want_dw) store_upto<W>(dw + c, load_upto<W>(dw + c, left) + grad * xhat, left);
        if (want_db) store_upto<W>(db + c, load_upto<W>(db + c, left) + grad, left);
      }
      const Vec<W> mean_g = splat<W>(layer_norm ? simd::sum(sum_g) * inverse : 0.0f), mean_gx = splat<W>(simd::sum(sum_gx) * inverse);
      float* out = dx + n * columns;
      for (Index c = 0; c < columns; c += kLanes) {
        const Index left = columns - c;
        const Vec<W> xhat = (load_upto<W>(in + c, left) - m) * r, g = load_upto<W>(d + c, left) * load_upto<W>(w + c, left);
        store_upto<W>(out + c, load_upto<W>(out + c, left) + r * (g - mean_g - xhat * mean_gx), left);
      }
    }
  }
};

Index partial_columns(const AddNormGrad& op) { return op.x.dim(1) * ((given(op.dw) ? 1 : 0) + (given(op.db) ? 1 : 0)); }

}  // namespace

void check(const AddNorm& op) {
  constexpr const char* kOp = AddNorm::kName;
  expect_rank(kOp, "x", op.x, 2);
  const Index n = op.x.dim(0), c = op.x.dim(1);
  require(c >= 1, kOp, ": x has shape ", op.x.shape.str(), ", expected at least 1 column");
  require(op.eps > 0, kOp, ": eps = ", op.eps, ", expected a positive number");
  expect(kOp, "x", op.x, {n, c});
  expect(kOp, "y", op.y, {n, c});
  expect(kOp, "w", op.w, {c});
  expect_if_given(kOp, "b", op.b, {c});
  expect_if_given(kOp, "delta", op.delta, {n, c});
  expect_if_given(kOp, "sum", op.sum, {n, c});
  require(!given(op.delta) || given(op.sum), kOp, ": delta is given without sum");
  expect_if_given(kOp, "mean", op.mean, {n});
  expect_if_given(kOp, "rstd", op.rstd, {n});
}

void launch(CpuStream s, const AddNorm& op, Scratch) {
  const Index n = op.x.dim(0), c = op.x.dim(1);
  const Forward kernel{.y = data_or_null<float>(op.y),
                       .sum = data_or_null<float>(op.sum),
                       .mean = data_or_null<float>(op.mean),
                       .rstd = data_or_null<float>(op.rstd),
                       .x = data_or_null<float>(op.x),
                       .delta = data_or_null<float>(op.delta),
                       .w = op.w.as<float>(),
                       .b = data_or_null<float>(op.b),
                       .columns = c,
                       .eps = op.eps,
                       .layer_norm = op.kind == NormKind::kLayerNorm};
  const Index rows = rows_of_task(c);
  s.pool.parallel_for((n + rows - 1) / rows, [&](Index task, int) { call(isa(), kernel, task * rows, std::min(n, (task + 1) * rows)); });
}

void check(const AddNormGrad& op) {
  constexpr const char* kOp = AddNormGrad::kName;
  expect_rank(kOp, "x", op.x, 2);
  const Index n = op.x.dim(0), c = op.x.dim(1);
  require(c >= 1, kOp, ": x has shape ", op.x.shape.str(), ", expected at least 1 column");
  expect(kOp, "x", op.x, {n, c});
  expect(kOp, "dx", op.dx, {n, c});
  expect(kOp, "dy", op.dy, {n, c});
  expect(kOp, "w", op.w, {c});
  expect(kOp, "rstd", op.rstd, {n});
  if (op.kind == NormKind::kLayerNorm) expect(kOp, "mean", op.mean, {n});
  expect_if_given(kOp, "dw", op.dw, {c});
  expect_if_given(kOp, "db", op.db, {c});
}

std::size_t scratch_bytes(const Target&, const AddNormGrad& op) {
  return static_cast<std::size_t>(token_blocks(op.x.dim(0)).count * partial_columns(op)) * sizeof(float);
}

void launch(CpuStream s, const AddNormGrad& op, Scratch scratch) {
  const Index n = op.x.dim(0), c = op.x.dim(1);
  const TokenBlocks blocks = token_blocks(n);
  const Backward kernel{.dx = data_or_null<float>(op.dx),
                        .partial = static_cast<float*>(scratch.data),
                        .dy = data_or_null<float>(op.dy),
                        .x = data_or_null<float>(op.x),
                        .w = op.w.as<float>(),
                        .mean = data_or_null<float>(op.mean),
                        .rstd = data_or_null<float>(op.rstd),
                        .columns = c,
                        .stride = partial_columns(op),
                        .layer_norm = op.kind == NormKind::kLayerNorm,
                        .want_dw = given(op.dw),
                        .want_db = given(op.db)};
  s.pool.parallel_for(blocks.count,
                      [&](Index block, int) { call(isa(), kernel, block, block * blocks.rows, std::min(n, (block + 1) * blocks.rows)); });
  const float* db = kernel.partial + (kernel.want_dw ? c : 0);
  if (kernel.want_dw) add_partials(s, kernel.partial, blocks.count, kernel.stride, c, op.dw.as<float>());
  if (kernel.want_db) add_partials(s, db, blocks.count, kernel.stride, c, op.db.as<float>());
}

}  // namespace flashgpt
