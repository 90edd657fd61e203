// Rotary embedding against its twin and finite differences, and at positions where fp32 angles fail.
#include "ops/qkv_rope.h"

#include "ops/op_case.h"
#include "ops/twin.h"

namespace flashgpt::testing {
namespace {

struct Case {
  std::int64_t n, heads, kv_heads, head_dim, rope_dim;
};
constexpr Case kCases[] = {{0, 2, 1, 8, 8},    {1, 1, 1, 2, 2},    {5, 3, 1, 7, 6},     {5, 4, 2, 64, 64},
                           {40, 2, 2, 32, 32}, {7, 2, 1, 128, 32}, {150, 1, 1, 48, 48}, {3, 1, 1, 1, 0}};

Tensor frequencies(Box& box, std::int64_t rope_dim) {
  Tensor t = box.raw({rope_dim / 2}, Dtype::kF32);
  for (std::int64_t j = 0; j < rope_dim / 2; ++j)
    t.as<float>()[j] = static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(rope_dim)));
  return t;
}

QkvRope forward(Box& box, Case z, bool bias, bool turn, std::int64_t longest = 1000) {
  const std::int64_t columns = (z.heads + 2 * z.kv_heads) * z.head_dim;
  return {.qkv = box.normal({z.n, columns}),
          .bias = bias ? box.normal({columns}) : Tensor{},
          .positions = turn ? box.ids(z.n, 0, longest) : Tensor{},
          .inv_freq = turn ? frequencies(box, z.rope_dim) : Tensor{},
          .heads = z.heads,
          .kv_heads = z.kv_heads,
          .head_dim = z.head_dim};
}
QkvRopeGrad backward(Box& box, Case z, bool bias, bool turn, std::int64_t longest = 1000) {
  const QkvRope f = forward(box, z, false, turn, longest);
  return {.dqkv = f.qkv,
          .dbias = bias ? box.normal({f.qkv.dim(1)}) : Tensor{},
          .positions = f.positions,
          .inv_freq = f.inv_freq,
          .heads = z.heads,
          .kv_heads = z.kv_heads,
          .head_dim = z.head_dim};
}

TEST(QkvRope, LikeItsTwin) {
  for (Case z : kCases) {
    for (int form = 0; form < 4; ++form) {
      Box box;
      expect_like_twin(box, forward(box, z, form & 1, form & 2), 5e-7);
      expect_like_twin(box, backward(box, z, form & 1, form & 2), 2e-6);
      if (::testing::Test::HasFatalFailure()) FAIL() << z.n << " " << z.heads << " " << z.head_dim << " form " << form;
    }
  }
}

TEST(QkvRope, ExactAtLongPositions) {  // an angle in fp32 is off by 0.03 at position 500 000
  Box box;
  expect_like_twin(box, forward(box, {50, 2, 1, 64, 64}, true, true, 2000000000), 5e-7);
  expect_like_twin(box, backward(box, {50, 2, 1, 64, 64}, true, true, 1000000), 2e-6);
}

TEST(QkvRope, GradientsAgainstDifferences) {
  Box box;
  const Case z{3, 2, 1, 6, 4};
  const QkvRope start = box.widen(forward(box, z, true, true));
  const QkvRopeGrad upstream = box.widen(backward(box, z, true, true));
  QkvRopeGrad grad = box.copy(upstream);
  grad.positions = start.positions;
  grad.inv_freq = start.inv_freq;
  std::fill_n(grad.dbias.as<double>(), grad.dbias.numel(), 0.0);
  twin<double>(grad);
  auto loss = [&] {
    const QkvRope op = box.copy(start);
    twin<double>(op);
    return dot(op.qkv, upstream.dqkv);
  };
  expect_gradient("qkv", start.qkv, grad.dqkv, loss);
  expect_gradient("bias", start.bias, grad.dbias, loss);
}

TEST(QkvRope, VIsNotTurned) {
  Box box;
  const QkvRope op = forward(box, {6, 2, 1, 8, 8}, false, true), before = box.copy(op);
  ThreadPool pool(1, false);
  run_op(pool, op);
  for (std::int64_t n = 0; n < 6; ++n)
    for (std::int64_t c = 24; c < 32; ++c) EXPECT_EQ(op.qkv.as<float>()[n * 32 + c], before.qkv.as<float>()[n * 32 + c]);
}

TEST(QkvRope, ErrorsNameTheTensor) {
  Box box;
  QkvRope op = forward(box, {6, 2, 1, 8, 8}, false, true);
  op.inv_freq = box.normal({5});
  EXPECT_NE(check_message(op).find("inv_freq has 5 frequencies"), std::string::npos);
  op = forward(box, {6, 2, 1, 8, 8}, false, true);
  op.heads = 3;
  EXPECT_EQ(check_message(op), "qkv_rope: qkv has shape [6, 32], expected [6, 40]");
}

}  // namespace
}  // namespace flashgpt::testing
