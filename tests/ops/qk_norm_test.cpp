// Norms of query and key heads against their twin and finite differences.
#include "ops/qk_norm.h"

#include "ops/op_case.h"
#include "ops/twin.h"

namespace flashgpt::testing {
namespace {

struct Case {
  std::int64_t n, heads, kv_heads, head_dim;
};
constexpr Case kCases[] = {{0, 2, 1, 8},   {1, 1, 1, 1},   {5, 3, 1, 7},    {5, 4, 2, 64},
                           {40, 2, 2, 33}, {7, 2, 1, 128}, {150, 1, 1, 48}, {300, 6, 2, 16}};

QkNorm forward(Box& box, Case z, bool kept) {
  const std::int64_t normed = z.heads + z.kv_heads;
  return {.qkv = box.normal({z.n, (normed + z.kv_heads) * z.head_dim}),
          .x = kept ? box.filled({z.n, normed * z.head_dim}, kNan) : Tensor{},
          .rstd = kept ? box.filled({z.n, normed}, kNan) : Tensor{},
          .q_weight = box.normal({z.head_dim}),
          .k_weight = box.normal({z.head_dim}),
          .heads = z.heads,
          .kv_heads = z.kv_heads};
}

QkNormGrad backward(Box& box, Case z, const QkNorm& done, bool weights) {
  return {.dqkv = box.normal(done.qkv.shape),
          .dq_weight = weights ? box.normal({z.head_dim}) : Tensor{},
          .dk_weight = weights ? box.normal({z.head_dim}) : Tensor{},
          .x = done.x,
          .rstd = done.rstd,
          .q_weight = done.q_weight,
          .k_weight = done.k_weight,
          .heads = z.heads,
          .kv_heads = z.kv_heads};
}

TEST(QkNorm, LikeItsTwin) {
  for (Case z : kCases) {
    Box box;
    SCOPED_TRACE(cat(z.n, " tokens, ", z.heads, " heads of ", z.head_dim));
    expect_like_twin(box, forward(box, z, false), 1e-6);
    QkNorm op = forward(box, z, true);
    expect_like_twin(box, op, 1e-6, &op);
    for (bool weights : {false, true}) expect_like_twin(box, backward(box, z, op, weights), 3e-6);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(QkNorm, GradientsAgainstDifferences) {
  Box box;
  const Case z{3, 2, 1, 5};
  const QkNorm start = box.widen(forward(box, z, true));
  // twin() overwrites qkv, so each call gets a copy.
  auto fresh = [&](const QkNorm& from) {
    QkNorm op = from;
    op.qkv = box.raw(from.qkv.shape, Dtype::kF64);
    op.x = box.raw(from.x.shape, Dtype::kF64);
    op.rstd = box.raw(from.rstd.shape, Dtype::kF64);
    std::copy_n(from.qkv.as<double>(), from.qkv.numel(), op.qkv.as<double>());
    return op;
  };
  const QkNorm forward_done = fresh(start);
  twin<double>(forward_done);
  Box narrow(2);
  const Tensor upstream = box.raw(start.qkv.shape, Dtype::kF64), values = narrow.normal(start.qkv.shape);
  for (std::int64_t i = 0; i < upstream.numel(); ++i) upstream.as<double>()[i] = values.as<float>()[i];
  QkNormGrad grad{.dqkv = box.raw(start.qkv.shape, Dtype::kF64),
                  .dq_weight = box.raw({z.head_dim}, Dtype::kF64),
                  .dk_weight = box.raw({z.head_dim}, Dtype::kF64),
                  .x = forward_done.x,
                  .rstd = forward_done.rstd,
                  .q_weight = start.q_weight,
                  .k_weight = start.k_weight,
                  .heads = z.heads,
                  .kv_heads = z.kv_heads};
  std::copy_n(upstream.as<double>(), upstream.numel(), grad.dqkv.as<double>());
  std::fill_n(grad.dq_weight.as<double>(), z.head_dim, 0.0);
  std::fill_n(grad.dk_weight.as<double>(), z.head_dim, 0.0);
  twin<double>(grad);
  auto loss = [&] {
    const QkNorm op = fresh(start);
    twin<double>(op);
    return dot(op.qkv, upstream);
  };
  expect_gradient("qkv", start.qkv, grad.dqkv, loss);
  expect_gradient("q_weight", start.q_weight, grad.dq_weight, loss);
  expect_gradient("k_weight", start.k_weight, grad.dk_weight, loss);
}

TEST(QkNorm, ErrorsNameTheTensor) {
  Box box;
  QkNorm op = forward(box, {6, 2, 1, 8}, true);
  op.k_weight = box.normal({7});
  EXPECT_EQ(check_message(op), "qk_norm: k_weight has shape [7], expected [8]");
  op = forward(box, {6, 2, 1, 8}, true);
  op.heads = 3;
  EXPECT_EQ(check_message(op), "qk_norm: qkv has shape [6, 32], expected [6, 40]");
}

}  // namespace
}  // namespace flashgpt::testing
