// Norms of query and key heads on the CPU: a head fits in the L1 cache, so its two passes read memory once.
#include "ops/qk_norm.h"

#include <cmath>

#include "core/cpu/simd.h"
#include "ops/check.h"
#include "ops/cpu/token_sum.h"

namespace flashgpt {
namespace {

using namespace simd;
using Index = std::int64_t;

struct Forward {
  float *qkv, *x, *rstd;
  const float *q_weight, *k_weight;
  Index columns, heads, normed, head_dim;  // heads of q; of q and k together
  float eps;

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    const float inverse = 1.0f / static_cast<float>(head_dim);
    for (Index n = first; n < last; ++n) {
      for (Index h = 0; h < normed; ++h) {
        float* head = qkv + n * columns + h * head_dim;
        const float* w = h < heads ? q_weight : k_weight;
        float* kept = x ? x + (n * normed + h) * head_dim : nullptr;
        Vec<W> squares = splat<W>(0.0f);
        for (Index c = 0; c < head_dim; c += kLanes) {
          const Vec<W> v = load_upto<W>(head + c, head_dim - c);
          if (kept) store_upto<W>(kept + c, v, head_dim - c);
          squares = squares + v * v;
        }
        const float scale = 1.0f / std::sqrt(simd::sum(squares) * inverse + eps);
        if (rstd) rstd[n * normed + h] = scale;
        const Vec<W> r = splat<W>(scale);
        for (Index c = 0; c < head_dim; c += kLanes)
          store_upto<W>(head + c, load_upto<W>(head + c, head_dim - c) * r * load_upto<W>(w + c, head_dim - c), head_dim - c);
      }
    }
  }
};

struct Backward {
  float *dqkv, *partial;  // partial of a block: gradient of q's weight, then of k's
  const float *x, *rstd, *q_weight, *k_weight;
  Index columns, heads, normed, head_dim;

  template <int W> [[gnu::always_inline]] void run(Index block, Index first, Index last) const {
    float* sums = partial + block * 2 * head_dim;
    for (Index i = 0; i < 2 * head_dim; ++i) sums[i] = 0.0f;
    const float inverse = 1.0f / static_cast<float>(head_dim);
    for (Index n = first; n < last; ++n) {
      for (Index h = 0; h < normed; ++h) {
        float *head = dqkv + n * columns + h * head_dim, *dw = sums + (h < heads ? 0 : head_dim);
        const float *w = h < heads ? q_weight : k_weight, *in = x + (n * normed + h) * head_dim;
        const Vec<W> r = splat<W>(rstd[n * normed + h]);
        Vec<W> products = splat<W>(0.0f);
        for (Index c = 0; c < head_dim; c += kLanes) {
          const Index left = head_dim - c;
          const Vec<W> dy = load_upto<W>(head + c, left), xhat = load_upto<W>(in + c, left) * r;
          products = products + dy * load_upto<W>(w + c, left) * xhat;
          store_upto<W>(dw + c, load_upto<W>(dw + c, left) + dy * xhat, left);
        }
        const Vec<W> mean = splat<W>(simd::sum(products) * inverse);
        for (Index c = 0; c < head_dim; c += kLanes) {
          const Index left = head_dim - c;
          const Vec<W> g = load_upto<W>(head + c, left) * load_upto<W>(w + c, left), xhat = load_upto<W>(in + c, left) * r;
          store_upto<W>(head + c, r * (g - xhat * mean), left);
        }
      }
    }
  }
};

// Returns head_dim.
template <class Op> Index check_common(const Op& op, const char* name, const Tensor& qkv) {
  expect_rank(Op::kName, name, qkv, 2);
  expect_rank(Op::kName, "q_weight", op.q_weight, 1);
  const Index head_dim = op.q_weight.dim(0);
  require(op.heads > 0 && op.kv_heads > 0 && head_dim > 0, Op::kName, ": heads = ", op.heads, ", kv_heads = ", op.kv_heads,
          ", head_dim = ", head_dim, ", expected positive numbers");
  expect(Op::kName, "q_weight", op.q_weight, {head_dim});
  expect(Op::kName, "k_weight", op.k_weight, {head_dim});
  expect(Op::kName, name, qkv, {qkv.dim(0), (op.heads + 2 * op.kv_heads) * head_dim});
  return head_dim;
}

}  // namespace

void check(const QkNorm& op) {
  const Index d = check_common(op, "qkv", op.qkv), n = op.qkv.dim(0), normed = op.heads + op.kv_heads;
  require(op.eps > 0, QkNorm::kName, ": eps = ", op.eps, ", expected a positive number");
  expect_if_given(QkNorm::kName, "x", op.x, {n, normed * d});
  expect_if_given(QkNorm::kName, "rstd", op.rstd, {n, normed});
}

void launch(CpuStream s, const QkNorm& op, Scratch) {
  const Index n = op.qkv.dim(0), columns = op.qkv.dim(1);
  const Forward kernel{.qkv = data_or_null<float>(op.qkv),
                       .x = data_or_null<float>(op.x),
                       .rstd = data_or_null<float>(op.rstd),
                       .q_weight = op.q_weight.as<float>(),
                       .k_weight = op.k_weight.as<float>(),
                       .columns = columns,
                       .heads = op.heads,
                       .normed = op.heads + op.kv_heads,
                       .head_dim = op.q_weight.dim(0),
                       .eps = op.eps};
  const Index rows = rows_of_task(columns);
  s.pool.parallel_for((n + rows - 1) / rows, [&](Index task, int) { call(isa(), kernel, task * rows, std::min(n, (task + 1) * rows)); });
}

void check(const QkNormGrad& op) {
  const Index d = check_common(op, "dqkv", op.dqkv), n = op.dqkv.dim(0), normed = op.heads + op.kv_heads;
  expect(QkNormGrad::kName, "x", op.x, {n, normed * d});
  expect(QkNormGrad::kName, "rstd", op.rstd, {n, normed});
  expect_if_given(QkNormGrad::kName, "dq_weight", op.dq_weight, {d});
  expect_if_given(QkNormGrad::kName, "dk_weight", op.dk_weight, {d});
}

std::size_t scratch_bytes(const Target&, const QkNormGrad& op) {
  return static_cast<std::size_t>(token_blocks(op.dqkv.dim(0)).count * 2 * op.q_weight.dim(0)) * sizeof(float);
}

void launch(CpuStream s, const QkNormGrad& op, Scratch scratch) {
  const Index n = op.dqkv.dim(0), d = op.q_weight.dim(0);
  const TokenBlocks blocks = token_blocks(n);
  const Backward kernel{.dqkv = data_or_null<float>(op.dqkv),
                        .partial = static_cast<float*>(scratch.data),
                        .x = data_or_null<float>(op.x),
                        .rstd = data_or_null<float>(op.rstd),
                        .q_weight = op.q_weight.as<float>(),
                        .k_weight = op.k_weight.as<float>(),
                        .columns = op.dqkv.dim(1),
                        .heads = op.heads,
                        .normed = op.heads + op.kv_heads,
                        .head_dim = d};
  s.pool.parallel_for(blocks.count,
                      [&](Index block, int) { call(isa(), kernel, block, block * blocks.rows, std::min(n, (block + 1) * blocks.rows)); });
  if (op.dq_weight) add_partials(s, kernel.partial, blocks.count, 2 * d, d, op.dq_weight.as<float>());
  if (op.dk_weight) add_partials(s, kernel.partial + d, blocks.count, 2 * d, d, op.dk_weight.as<float>());
}

}  // namespace flashgpt
