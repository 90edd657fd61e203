// A target beyond the vocabulary is a fault of the data, which the loader finds; here it makes the loss NaN (so the step is skipped and
// counted), gives no gradient, and touches no memory outside its row.
#include "ops/linear_cross_entropy.h"

#include <cmath>
#include <limits>

#include "core/cpu/simd_math.h"
#include "core/gemm.h"
#include "ops/check.h"
#include "ops/cpu/token_sum.h"

namespace flashgpt {
namespace {

using namespace simd;
using Index = std::int64_t;

// A chunk of logits of 64 MB at most. The weights and their gradient stream through memory once a chunk: with 50304 x 768 and 2 threads,
// 128, 256, 512 and 1024 rows run at 147, 151, 153 and 153 GFLOP/s. Fewer than 256 rows of a small vocabulary are too little for a panel.
constexpr Index kChunkFloats = Index{1} << 24, kMostRows = 1024, kLeastRows = 64;
constexpr Index kDoubleEvery = 64 * kLanes;  // so many terms are summed in fp32 lanes before they go to double

Index rows_of_chunk(const LinearCrossEntropy& op) {
  const Index n = op.x.dim(0), v = std::max<Index>(1, op.w.dim(0));
  Index rows = op.chunk_rows;
  if (rows == 0) rows = std::clamp(kChunkFloats / v / 32 * 32, kLeastRows, kMostRows);
  return std::max<Index>(1, std::min(rows, n));
}

// Logits -> loss and, where wanted, the gradient in their place.
struct Rows {
  float* logits;  // [rows, vocabulary]
  const std::int32_t* targets;
  double* losses;
  Index vocabulary;
  float scale;  // of the gradient
  bool gradient;

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    for (Index n = first; n < last; ++n) {
      float* z = logits + n * vocabulary;
      const Index target = targets[n];
      if (target < 0 || target >= vocabulary) {
        losses[n] = target < 0 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
        if (gradient)
          for (Index v = 0; v < vocabulary; ++v) z[v] = 0.0f;
        continue;
      }
      constexpr float kLow = -std::numeric_limits<float>::infinity();
      Vec<W> top = splat<W>(kLow);
      for (Index v = 0; v < vocabulary; v += kLanes) top = at_least(top, load_upto<W>(z + v, vocabulary - v, kLow));
      const float most = largest(top), at_target = z[target];
      const Vec<W> m = splat<W>(most);
      double total = 0;
      for (Index start = 0; start < vocabulary; start += kDoubleEvery) {
        const Index end = std::min(vocabulary, start + kDoubleEvery);
        Vec<W> part = splat<W>(0.0f);
        for (Index v = start; v < end; v += kLanes) {
          const Vec<W> e = exp<W>(load_upto<W>(z + v, vocabulary - v, kLow) - m);
          part = part + e;
          if (gradient) store_upto<W>(z + v, e, vocabulary - v);
        }
        total += static_cast<double>(simd::sum(part));
      }
      losses[n] = std::log(total) + static_cast<double>(most) - static_cast<double>(at_target);
      if (!gradient) continue;
      const Vec<W> factor = splat<W>(static_cast<float>(scale / total));
      for (Index v = 0; v < vocabulary; v += kLanes) store_upto<W>(z + v, load_upto<W>(z + v, vocabulary - v) * factor, vocabulary - v);
      z[target] -= scale;
    }
  }
};

struct Layout {  // of the scratch
  Index chunk;
  std::size_t losses, logits;  // bytes
};

Layout layout(const LinearCrossEntropy& op) {
  const Index chunk = rows_of_chunk(op);
  const std::size_t losses = (static_cast<std::size_t>(op.x.dim(0)) * sizeof(double) + 63) / 64 * 64;
  return {chunk, losses, static_cast<std::size_t>(chunk * op.w.dim(0)) * sizeof(float)};
}

}  // namespace

void check(const LinearCrossEntropy& op) {
  constexpr const char* kOp = LinearCrossEntropy::kName;
  expect_rank(kOp, "x", op.x, 2);
  expect_rank(kOp, "w", op.w, 2);
  const Index n = op.x.dim(0), c = op.x.dim(1), v = op.w.dim(0);
  expect_scalars(kOp, op.scalars);
  expect(kOp, "x", op.x, {n, c});
  expect(kOp, "w", op.w, {v, c});
  require(v >= 1, kOp, ": w has shape ", op.w.shape.str(), ", expected at least 1 row");
  expect(kOp, "targets", op.targets, {n}, Dtype::kI32);
  expect_if_given(kOp, "losses", op.losses, {n});
  expect_if_given(kOp, "dx", op.dx, {n, c});
  expect_if_given(kOp, "dw", op.dw, {v, c});
  require(given(op.dx) || !given(op.dw), kOp, ": dw is given without dx");
  require(op.chunk_rows >= 0, kOp, ": chunk_rows = ", op.chunk_rows, ", expected 0 (automatic) or more");
}

std::size_t scratch_bytes(const Target&, const LinearCrossEntropy& op) {
  if (op.x.dim(0) == 0) return 0;
  const Layout l = layout(op);
  return l.losses + l.logits;
}

void launch(CpuStream s, const LinearCrossEntropy& op, Scratch scratch) {
  const Index n = op.x.dim(0), v = op.w.dim(0);
  if (n == 0) return;
  const Layout l = layout(op);
  double* losses = static_cast<double*>(scratch.data);
  float* logits_at = reinterpret_cast<float*>(static_cast<char*>(scratch.data) + l.losses);
  const std::int32_t* targets = op.targets.as<std::int32_t>();
  StepScalars& scalars = scalars_of(op.scalars);
  const bool gradient = given(op.dx);

  for (Index first = 0; first < n; first += l.chunk) {
    const Index rows = std::min(l.chunk, n - first);
    if (std::all_of(targets + first, targets + first + rows, [](std::int32_t t) { return t < 0; })) {
      std::fill_n(losses + first, rows, 0.0);
      if (gradient && op.dx) std::fill_n(op.dx.as<float>() + first * op.dx.dim(1), rows * op.dx.dim(1), 0.0f);
      continue;
    }
    const Tensor x = op.x.slice(0, first, rows), logits(logits_at, {rows, v}, Dtype::kF32);
    launch(s, Gemm{.c = logits, .a = x, .b = op.w, .trans_b = true}, {});

    const Rows kernel{.logits = logits_at,
                      .targets = targets + first,
                      .losses = losses + first,
                      .vocabulary = v,
                      .scale = scalars.inv_targets * scalars.loss_scale,
                      .gradient = gradient};
    const Index each = rows_of_task(v);
    s.pool.parallel_for((rows + each - 1) / each,
                        [&](Index task, int) { call(isa(), kernel, task * each, std::min(rows, (task + 1) * each)); });
    if (!gradient) continue;
    launch(s, Gemm{.c = op.dx.slice(0, first, rows), .a = logits, .b = op.w}, {});
    if (op.dw) launch(s, Gemm{.c = op.dw, .a = logits, .b = x, .trans_a = true, .accumulate = true}, {});
  }

  double total = 0;
  for (Index i = 0; i < n; ++i) total += losses[i];
  scalars.loss_sum += total;
  if (op.losses) {
    float* out = op.losses.as<float>();
    for (Index i = 0; i < n; ++i) out[i] = static_cast<float>(losses[i]);
  }
}

}  // namespace flashgpt
