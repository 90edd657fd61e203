// The optimizer's ops on the CPU. Each is as many passes over memory as its formula forces: AdamW one, Adafactor three over g and one over
// w; sums are made by blocks of a fixed size, in double across blocks.
#include "optim/ops.h"

#include <cmath>

#include "core/cpu/simd.h"
#include "ops/check.h"

namespace flashgpt {
namespace {

using namespace simd;
using Index = std::int64_t;

constexpr Index kBlock = 16384;  // elements of a task, 64 KB of each tensor; for SumSquares and Adafactor also the leaves of the sums

Index blocks_of(Index n) { return (n + kBlock - 1) / kBlock; }

struct Squares {
  const float* g;

  template <int W> [[gnu::always_inline]] void run(Index n, double* out) const {
    VecD<W> total = splat_double<W>(0.0);
    for (Index i = 0; i < n; i += kLanes) {
      const VecD<W> x = n - i >= kLanes ? load_double<W>(g + i) : to_double<W>(load_first<W>(g + i, n - i));
      total = total + x * x;
    }
    *out = sum(total);
  }
};

struct AdamWUpdate {
  float *w, *m, *v;
  const float* g;
  float grad_scale, beta1, beta2, inverse1, inverse2, eps, rate, decay;  // inverse: 1 / (1 - beta^t)

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    const Vec<W> b1 = splat<W>(beta1), c1 = splat<W>(1.0f - beta1), b2 = splat<W>(beta2), c2 = splat<W>(1.0f - beta2);
    for (Index i = first; i < last; i += kLanes) {
      const Index left = last - i;
      const Vec<W> grad = load_upto<W>(g + i, left) * splat<W>(grad_scale);
      const Vec<W> moment = b1 * load_upto<W>(m + i, left) + c1 * grad;
      const Vec<W> second = b2 * load_upto<W>(v + i, left) + c2 * (grad * grad);
      const Vec<W> old = load_upto<W>(w + i, left);
      const Vec<W> step = moment * splat<W>(inverse1) / (sqrt<W>(second * splat<W>(inverse2)) + splat<W>(eps));
      store_upto<W>(m + i, moment, left);
      store_upto<W>(v + i, second, left);
      store_upto<W>(w + i, old - splat<W>(rate) * (step + splat<W>(decay) * old), left);
    }
  }
};

// Adafactor in three passes over g: the moments and rms(w), rms(u), the update. A vector is one row, and its `col` is the full second
// moment.
struct Factored {
  float* w;
  float *row, *col;  // state
  const float* g;
  float* col_factor;      // 1 / sqrt(col)
  float* partial;         // [blocks, columns]: sums of g^2 by column
  double *w_sum, *u_sum;  // [blocks]
  Index rows, columns, rows_of_block;
  float grad_scale, beta2, eps1;
  double row_mean = 0;
  float rate = 0, decay = 0;

  Index blocks() const { return (rows + rows_of_block - 1) / rows_of_block; }
  Index end(Index block) const { return std::min(rows, (block + 1) * rows_of_block); }

  // A state that decays with 0 is not read: at step 1 it may hold anything.
  float moment(float old, float now) const { return (beta2 > 0 ? beta2 * old : 0.0f) + (1.0f - beta2) * now; }
  float row_factor(Index r) const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(row[r]) / row_mean)); }

  // Pass 1.
  template <int W> [[gnu::always_inline]] void run(Index block) const {
    float* by_column = partial + block * columns;
    for (Index c = 0; c < columns; ++c) by_column[c] = 0.0f;
    double squares_of_w = 0;
    for (Index r = block * rows_of_block; r < end(block); ++r) {
      Vec<W> total = splat<W>(0.0f), total_w = splat<W>(0.0f);
      for (Index c = 0; c < columns; c += kLanes) {
        const Index left = columns - c;
        const Vec<W> grad = load_upto<W>(g + r * columns + c, left) * splat<W>(grad_scale), old = load_upto<W>(w + r * columns + c, left);
        total = total + grad * grad;
        total_w = total_w + old * old;
        store_upto<W>(by_column + c, load_upto<W>(by_column + c, left) + grad * grad, left);
      }
      row[r] = moment(row[r], simd::sum(total) / static_cast<float>(columns) + eps1);
      squares_of_w += static_cast<double>(simd::sum(total_w));
    }
    w_sum[block] = squares_of_w;
  }
};

struct FactoredRms {  // pass 2
  const Factored& f;
  template <int W> [[gnu::always_inline]] void run(Index block) const {
    double total = 0;
    for (Index r = block * f.rows_of_block; r < f.end(block); ++r) {
      const Vec<W> factor = splat<W>(f.row_factor(r));
      Vec<W> part = splat<W>(0.0f);
      for (Index c = 0; c < f.columns; c += kLanes) {
        const Index left = f.columns - c;
        const Vec<W> u =
            load_upto<W>(f.g + r * f.columns + c, left) * splat<W>(f.grad_scale) * load_upto<W>(f.col_factor + c, left) * factor;
        part = part + u * u;
      }
      total += static_cast<double>(simd::sum(part));
    }
    f.u_sum[block] = total;
  }
};

struct FactoredUpdate {  // pass 3; rate is lr / max(1, rms(u) / clip)
  const Factored& f;
  template <int W> [[gnu::always_inline]] void run(Index block) const {
    for (Index r = block * f.rows_of_block; r < f.end(block); ++r) {
      const Vec<W> factor = splat<W>(f.row_factor(r)), rate = splat<W>(f.rate), decay = splat<W>(f.decay);
      for (Index c = 0; c < f.columns; c += kLanes) {
        const Index left = f.columns - c;
        const Vec<W> u =
            load_upto<W>(f.g + r * f.columns + c, left) * splat<W>(f.grad_scale) * load_upto<W>(f.col_factor + c, left) * factor;
        float* at = f.w + r * f.columns + c;
        const Vec<W> old = load_upto<W>(at, left);
        store_upto<W>(at, old - rate * u - decay * old, left);
      }
    }
  }
};

// A vector's passes: moment with both sums, then the update.
struct Full {
  float *w, *v;
  const float* g;
  double *w_sum, *u_sum;
  Index n;
  float grad_scale, beta2, eps1;
  float rate = 0, decay = 0;

  template <int W> [[gnu::always_inline]] void run(Index block) const {
    VecD<W> squares_of_w = splat_double<W>(0.0), squares_of_u = splat_double<W>(0.0);
    const Index last = std::min(n, (block + 1) * kBlock);
    for (Index i = block * kBlock; i < last; i += kLanes) {
      const Index left = last - i;
      const Vec<W> grad = load_upto<W>(g + i, left) * splat<W>(grad_scale), old = load_upto<W>(w + i, left);
      Vec<W> second = splat<W>(1.0f - beta2) * (grad * grad + splat<W>(eps1));
      if (beta2 > 0) second = splat<W>(beta2) * load_upto<W>(v + i, left) + second;
      store_upto<W>(v + i, second, left);
      Vec<W> u = grad / sqrt<W>(second);
      if (left < kLanes) u = load_first_lanes<W>(u, left);
      squares_of_w = squares_of_w + to_double<W>(old) * to_double<W>(old);
      squares_of_u = squares_of_u + to_double<W>(u) * to_double<W>(u);
    }
    w_sum[block] = sum(squares_of_w);
    u_sum[block] = sum(squares_of_u);
  }

  template <int W> [[gnu::always_inline]] static Vec<W> load_first_lanes(const Vec<W>& a, Index n) {
    float lane[kLanes];
    store<W>(lane, a);
    return load_first<W>(lane, n);
  }
};

struct FullUpdate {
  const Full& f;
  template <int W> [[gnu::always_inline]] void run(Index block) const {
    const Index last = std::min(f.n, (block + 1) * kBlock);
    for (Index i = block * kBlock; i < last; i += kLanes) {
      const Index left = last - i;
      const Vec<W> u = load_upto<W>(f.g + i, left) * splat<W>(f.grad_scale) / sqrt<W>(load_upto<W>(f.v + i, left, 1.0f));
      const Vec<W> old = load_upto<W>(f.w + i, left);
      store_upto<W>(f.w + i, old - splat<W>(f.rate) * u - splat<W>(f.decay) * old, left);
    }
  }
};

double add_up(const double* x, Index n) {
  double total = 0;
  for (Index i = 0; i < n; ++i) total += x[i];
  return total;
}

Index adafactor_rows_of_block(Index rows, Index columns) { return std::max((kBlock + columns - 1) / columns, (rows + 127) / 128); }

// What one step of Adafactor multiplies u and w with.
struct Rates {
  float update, decay;
};
Rates rates(const Adafactor& op, const StepScalars& s, double squares_of_w, double squares_of_u) {
  const double n = static_cast<double>(op.w.numel());
  double rate = s.learning_rate;
  if (op.relative_step) rate *= std::max<double>(op.eps2, std::sqrt(squares_of_w / n));
  const double excess = std::sqrt(squares_of_u / n) / op.clip_threshold;
  return {static_cast<float>(rate / std::max(1.0, excess)), static_cast<float>(rate * op.weight_decay)};
}

}  // namespace

void check(const SumSquares& op) {
  expect_scalars(SumSquares::kName, op.scalars);
  expect(SumSquares::kName, "g", op.g, op.g.shape);
}

std::size_t scratch_bytes(const Target&, const SumSquares& op) {
  return static_cast<std::size_t>(blocks_of(op.g.numel())) * sizeof(double);
}

void launch(CpuStream s, const SumSquares& op, Scratch scratch) {
  const Index n = op.g.numel(), blocks = blocks_of(n);
  if (n == 0) return;
  const float* g = op.g.as<float>();
  double* sums = static_cast<double*>(scratch.data);
  s.pool.parallel_for(
      blocks, [&](Index block, int) { call(isa(), Squares{g + block * kBlock}, std::min(kBlock, n - block * kBlock), sums + block); });
  scalars_of(op.scalars).norm_sq += add_up(sums, blocks);
}

void check(const FinishNorm& op) { expect_scalars(FinishNorm::kName, op.scalars); }

void launch(CpuStream, const FinishNorm& op, Scratch) {
  StepScalars& s = scalars_of(op.scalars);
  const double norm = std::sqrt(s.norm_sq) / s.loss_scale;
  s.grad_norm = static_cast<float>(norm);
  s.skip = std::isfinite(s.loss_sum) && std::isfinite(s.grad_norm) ? 0 : 1;
  const double clip = s.max_norm > 0 && norm > s.max_norm ? s.max_norm / norm : 1.0;
  s.grad_scale = s.skip ? 0.0f : static_cast<float>(clip / s.loss_scale);
}

void check(const AdamW& op) {
  constexpr const char* kOp = AdamW::kName;
  expect_scalars(kOp, op.scalars);
  expect(kOp, "w", op.w, op.w.shape);
  const std::pair<const char*, const Tensor*> others[] = {{"m", &op.m}, {"v", &op.v}, {"g", &op.g}};
  for (const auto& [name, t] : others) {
    require(t->numel() == op.w.numel(), kOp, ": ", name, " has shape ", t->shape.str(), ", expected as many elements as w ",
            op.w.shape.str());
    expect(kOp, name, *t, t->shape);
  }
  require(op.beta1 >= 0 && op.beta1 < 1 && op.beta2 >= 0 && op.beta2 < 1, kOp, ": beta1 = ", op.beta1, ", beta2 = ", op.beta2,
          ", expected numbers in [0, 1)");
  require(op.eps > 0, kOp, ": eps = ", op.eps, ", expected a positive number");
}

void launch(CpuStream s, const AdamW& op, Scratch) {
  const StepScalars& scalars = scalars_of(op.scalars);
  const Index n = op.w.numel();
  if (scalars.skip || n == 0) return;
  const double t = std::max(1, scalars.step);
  const AdamWUpdate kernel{.w = op.w.as<float>(),
                           .m = op.m.as<float>(),
                           .v = op.v.as<float>(),
                           .g = op.g.as<float>(),
                           .grad_scale = scalars.grad_scale,
                           .beta1 = op.beta1,
                           .beta2 = op.beta2,
                           .inverse1 = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(op.beta1), t))),
                           .inverse2 = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(op.beta2), t))),
                           .eps = op.eps,
                           .rate = scalars.learning_rate,
                           .decay = op.weight_decay};
  s.pool.parallel_for(blocks_of(n), [&](Index block, int) { call(isa(), kernel, block * kBlock, std::min(n, (block + 1) * kBlock)); });
}

void check(const Adafactor& op) {
  constexpr const char* kOp = Adafactor::kName;
  expect_scalars(kOp, op.scalars);
  require(op.w.rank() == 1 || op.w.rank() == 2, kOp, ": w has shape ", op.w.shape.str(), ", expected a matrix or a vector");
  expect(kOp, "w", op.w, op.w.shape);
  expect(kOp, "g", op.g, op.w.shape);
  expect(kOp, "col", op.col, {op.w.dim(-1)});
  if (op.w.rank() == 2) expect(kOp, "row", op.row, {op.w.dim(0)});
  require(op.eps1 > 0 && op.clip_threshold > 0, kOp, ": eps1 = ", op.eps1, ", clip_threshold = ", op.clip_threshold,
          ", expected positive numbers");
}

std::size_t scratch_bytes(const Target&, const Adafactor& op) {
  const Index columns = op.w.dim(-1);
  if (op.w.numel() == 0) return 0;
  if (op.w.rank() == 1) return static_cast<std::size_t>(2 * blocks_of(columns)) * sizeof(double);
  const Index each = adafactor_rows_of_block(op.w.dim(0), columns), blocks = (op.w.dim(0) + each - 1) / each;
  return static_cast<std::size_t>(2 * blocks) * sizeof(double) + static_cast<std::size_t>((blocks + 1) * columns) * sizeof(float);
}

void launch(CpuStream s, const Adafactor& op, Scratch scratch) {
  const StepScalars& scalars = scalars_of(op.scalars);
  const Index n = op.w.numel(), columns = op.w.dim(-1);
  if (scalars.skip || n == 0) return;
  const float beta2 =
      static_cast<float>(1.0 - std::pow(static_cast<double>(std::max(1, scalars.step)), -static_cast<double>(op.decay_rate)));
  double* w_sum = static_cast<double*>(scratch.data);
  float* col = op.col.as<float>();

  if (op.w.rank() == 1) {
    const Index blocks = blocks_of(n);
    Full full{.w = op.w.as<float>(),
              .v = col,
              .g = op.g.as<float>(),
              .w_sum = w_sum,
              .u_sum = w_sum + blocks,
              .n = n,
              .grad_scale = scalars.grad_scale,
              .beta2 = beta2,
              .eps1 = op.eps1};
    s.pool.parallel_for(blocks, [&](Index block, int) { call(isa(), full, block); });
    const Rates r = rates(op, scalars, add_up(full.w_sum, blocks), add_up(full.u_sum, blocks));
    full.rate = r.update;
    full.decay = r.decay;
    const FullUpdate update{full};
    s.pool.parallel_for(blocks, [&](Index block, int) { call(isa(), update, block); });
    return;
  }

  const Index rows = op.w.dim(0), each = adafactor_rows_of_block(rows, columns), blocks = (rows + each - 1) / each;
  float* col_factor = reinterpret_cast<float*>(w_sum + 2 * blocks);
  Factored f{.w = op.w.as<float>(),
             .row = op.row.as<float>(),
             .col = col,
             .g = op.g.as<float>(),
             .col_factor = col_factor,
             .partial = col_factor + columns,
             .w_sum = w_sum,
             .u_sum = w_sum + blocks,
             .rows = rows,
             .columns = columns,
             .rows_of_block = each,
             .grad_scale = scalars.grad_scale,
             .beta2 = beta2,
             .eps1 = op.eps1};
  s.pool.parallel_for(blocks, [&](Index block, int) { call(isa(), f, block); });
  for (Index r = 0; r < rows; ++r) f.row_mean += static_cast<double>(f.row[r]) / static_cast<double>(rows);
  constexpr Index kColumns = 256;  // of a task
  s.pool.parallel_for((columns + kColumns - 1) / kColumns, [&](Index task, int) {
    for (Index c = task * kColumns; c < std::min(columns, (task + 1) * kColumns); ++c) {
      double total = 0;
      for (Index block = 0; block < blocks; ++block) total += static_cast<double>(f.partial[block * columns + c]);
      col[c] = f.moment(col[c], static_cast<float>(total / static_cast<double>(rows)) + op.eps1);
      col_factor[c] = 1.0f / std::sqrt(col[c]);
    }
  });
  const FactoredRms rms{f};
  s.pool.parallel_for(blocks, [&](Index block, int) { call(isa(), rms, block); });
  const Rates r = rates(op, scalars, add_up(f.w_sum, blocks), add_up(f.u_sum, blocks));
  f.rate = r.update;
  f.decay = r.decay;
  const FactoredUpdate update{f};
  s.pool.parallel_for(blocks, [&](Index block, int) { call(isa(), update, block); });
}

}  // namespace flashgpt
