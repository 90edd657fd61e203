// Norms against their twin and finite differences, in place, with frozen weights, and where a one-pass variance fails.
#include "ops/add_norm.h"

#include "ops/op_case.h"
#include "ops/twin.h"

namespace flashgpt::testing {
namespace {

struct Case {
  std::int64_t n, c;
};
constexpr Case kCases[] = {{0, 7}, {1, 1}, {5, 1}, {1, 3}, {5, 3}, {5, 7}, {3, 16}, {40, 17}, {33, 64}, {5, 768}, {200, 100}};

AddNorm forward(Box& box, Case z, NormKind kind, bool delta, bool bias) {
  AddNorm op{.y = box.filled({z.n, z.c}, kNan), .x = box.normal({z.n, z.c}), .w = box.normal({z.c}), .kind = kind};
  op.rstd = box.filled({z.n}, kNan);
  if (kind == NormKind::kLayerNorm) op.mean = box.filled({z.n}, kNan);
  if (delta) {
    op.delta = box.normal({z.n, z.c});
    op.sum = box.filled({z.n, z.c}, kNan);
  }
  if (bias) op.b = box.normal({z.c});
  return op;
}

AddNormGrad backward(Box& box, const AddNorm& f) {
  const Shape shape = f.x.shape;
  const std::int64_t c = shape[1];
  return {.dx = box.normal(shape),
          .dw = box.normal({c}),
          .db = f.b ? box.normal({c}) : Tensor{},
          .dy = box.normal(shape),
          .x = f.sum ? f.sum : f.x,
          .w = f.w,
          .mean = f.mean,
          .rstd = f.rstd,
          .kind = f.kind};
}

TEST(AddNorm, LikeItsTwin) {
  for (Case z : kCases) {
    for (int form = 0; form < 8; ++form) {
      Box box;
      const NormKind kind = form & 1 ? NormKind::kLayerNorm : NormKind::kRmsNorm;
      // A column alone has variance 0 and is all rounding: eps gives it a scale.
      AddNorm op = forward(box, z, kind, form & 2, form & 4);
      if (z.c == 1) op.eps = 1.0f;
      AddNorm result = op;
      expect_like_twin(box, op, 3e-6, &result);
      if (::testing::Test::HasFatalFailure()) FAIL() << z.n << " x " << z.c << " form " << form;

      AddNormGrad grad = backward(box, result);
      expect_like_twin(box, grad, 1e-5);
      if (::testing::Test::HasFatalFailure()) FAIL() << z.n << " x " << z.c << " form " << form;
    }
  }
}

TEST(AddNorm, SumMayLieInXsMemory) {
  Box box;
  AddNorm apart = forward(box, {9, 50}, NormKind::kLayerNorm, true, true);
  AddNorm in_place = box.copy(apart);
  in_place.sum = in_place.x;
  ThreadPool pool(2, false);
  run_op(pool, apart);
  run_op(pool, in_place);
  EXPECT_EQ(std::memcmp(apart.sum.data, in_place.sum.data, apart.sum.bytes()), 0);
  EXPECT_EQ(std::memcmp(apart.y.data, in_place.y.data, apart.y.bytes()), 0);
}

TEST(AddNorm, LargeMeanSmallVariance) {  // the one-pass formula E[x^2] - E[x]^2 gives nothing here
  Box box;
  AddNorm op = forward(box, {4, 768}, NormKind::kLayerNorm, false, false);
  for (std::int64_t i = 0; i < op.x.numel(); ++i) op.x.as<float>()[i] = 1000.0f + 0.25f * op.x.as<float>()[i];
  expect_like_twin(box, op, 3e-4);
}

TEST(AddNorm, GradientsAgainstDifferences) {
  for (NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    Box box;
    const AddNorm op = box.widen(forward(box, {3, 5}, kind, true, true));
    twin<double>(op);
    const Tensor dy = box.widen(Embedding{.y = box.normal({3, 5})}).y;
    AddNormGrad grad{.dx = box.raw({3, 5}, Dtype::kF64),
                     .dw = box.raw({5}, Dtype::kF64),
                     .db = box.raw({5}, Dtype::kF64),
                     .dy = dy,
                     .x = op.sum,
                     .w = op.w,
                     .mean = op.mean,
                     .rstd = op.rstd,
                     .kind = kind};
    const Tensor kept = box.copy(grad).x;
    grad.x = kept;
    twin<double>(grad);
    auto loss = [&] {
      twin<double>(op);
      return dot(op.y, dy);
    };
    expect_gradient("x", op.x, grad.dx, loss);
    expect_gradient("delta", op.delta, grad.dx, loss);
    expect_gradient("w", op.w, grad.dw, loss);
    expect_gradient("b", op.b, grad.db, loss);
  }
}

TEST(AddNorm, FrozenWeightWantsNoGradient) {
  Box box;
  AddNorm op = forward(box, {20, 33}, NormKind::kLayerNorm, false, true);
  ThreadPool pool(2, false);
  run_op(pool, op);
  AddNormGrad all = backward(box, op), frozen = box.copy(all), only_bias = box.copy(all);
  frozen.dw = frozen.db = Tensor{};
  only_bias.dw = Tensor{};
  run_op(pool, all);
  run_op(pool, frozen);
  run_op(pool, only_bias);
  EXPECT_EQ(std::memcmp(all.dx.data, frozen.dx.data, all.dx.bytes()), 0);
  EXPECT_EQ(std::memcmp(all.db.data, only_bias.db.data, all.db.bytes()), 0);
}

TEST(AddNorm, ErrorsNameTheTensor) {
  Box box;
  AddNorm op = forward(box, {4, 6}, NormKind::kLayerNorm, false, false);
  op.w = box.normal({5});
  EXPECT_EQ(check_message(op), "add_norm: w has shape [5], expected [6]");
  op = forward(box, {4, 6}, NormKind::kLayerNorm, false, false);
  op.delta = box.normal({4, 6});
  EXPECT_NE(check_message(op).find("delta is given without sum"), std::string::npos);
  AddNormGrad grad = backward(box, forward(box, {4, 6}, NormKind::kRmsNorm, false, false));
  grad.kind = NormKind::kLayerNorm;
  EXPECT_NE(check_message(grad).find("mean is missing"), std::string::npos);
}

}  // namespace
}  // namespace flashgpt::testing
