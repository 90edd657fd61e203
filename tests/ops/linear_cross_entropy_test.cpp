// The language-model head and its loss against their twin and finite differences; ignored, wrong and extreme values.
#include "ops/linear_cross_entropy.h"

#include "ops/op_case.h"
#include "ops/twin.h"

namespace flashgpt::testing {
namespace {

struct Case {
  std::int64_t n, c, v, chunk;
};

// About a third of the targets is ignored.
LinearCrossEntropy loss_op(Box& box, Case z, bool gradient, float scale = 1.0f) {
  LinearCrossEntropy op{.losses = box.filled({z.n}, kNan),
                        .x = box.normal({z.n, z.c}),
                        .w = box.normal({z.v, z.c}, scale),
                        .targets = box.ids(z.n, -z.v / 2, z.v),
                        .chunk_rows = z.chunk};
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < z.n; ++i) valid += op.targets.as<std::int32_t>()[i] >= 0;
  StepScalars s;
  s.inv_targets = 1.0f / static_cast<float>(std::max<std::int64_t>(1, valid));
  s.loss_sum = 2.5;
  op.scalars = box.scalars(s);
  if (gradient) {
    op.dx = box.filled({z.n, z.c}, kNan);
    op.dw = box.normal({z.v, z.c}, 0.1f);
  }
  return op;
}

TEST(LinearCrossEntropy, LikeItsTwin) {
  for (Case z : {Case{0, 3, 4, 0}, {1, 1, 1, 0}, {8, 10, 15, 0}, {8, 10, 15, 3}, {5, 7, 257, 2}, {70, 33, 100, 16}, {300, 16, 257, 0}}) {
    for (bool gradient : {false, true}) {
      Box box;
      const LinearCrossEntropy op = loss_op(box, z, gradient);
      LinearCrossEntropy result = op;
      expect_like_twin(box, op, 3e-6, &result);
      if (::testing::Test::HasFatalFailure()) FAIL() << z.n << " " << z.c << " " << z.v << " gradient " << gradient;
      const LinearCrossEntropy wide = box.widen(op);
      twin<double>(wide);
      const double want = scalars_of(wide.scalars).loss_sum, got = scalars_of(result.scalars).loss_sum;
      EXPECT_NEAR(got, want, 1e-6 * std::abs(want));
    }
  }
}

TEST(LinearCrossEntropy, VocabularyOfGpt2) {
  Box box;
  expect_like_twin(box, loss_op(box, {6, 24, 50257, 4}, true), 5e-6);
}

TEST(LinearCrossEntropy, GradientsAgainstDifferences) {
  Box box;
  const LinearCrossEntropy op = box.widen(loss_op(box, {6, 4, 5, 0}, true));
  std::fill_n(op.dw.as<double>(), op.dw.numel(), 0.0);
  twin<double>(op);
  LinearCrossEntropy only_loss = op;
  only_loss.dx = only_loss.dw = Tensor{};
  auto loss = [&] {
    StepScalars& s = scalars_of(op.scalars);
    s.loss_sum = 0;
    twin<double>(only_loss);
    return s.loss_sum * s.inv_targets;
  };
  expect_gradient("x", op.x, op.dx, loss);
  expect_gradient("w", op.w, op.dw, loss);
}

TEST(LinearCrossEntropy, LossIsTheSameWithoutGradients) {
  Box box;
  ThreadPool pool(2, false);
  const LinearCrossEntropy with = loss_op(box, {40, 12, 300, 0}, true);
  LinearCrossEntropy without = box.copy(with);
  without.dx = without.dw = Tensor{};
  run_op(pool, with);
  run_op(pool, without);
  EXPECT_EQ(std::memcmp(with.losses.data, without.losses.data, with.losses.bytes()), 0);
  EXPECT_EQ(scalars_of(with.scalars).loss_sum, scalars_of(without.scalars).loss_sum);
}

TEST(LinearCrossEntropy, LargeLogits) {
  Box box;
  const LinearCrossEntropy op = loss_op(box, {12, 8, 40, 0}, true, 1e4f);  // exp of any of them overflows
  expect_like_twin(box, op, 3e-6);
}

TEST(LinearCrossEntropy, NanAndInfReachTheLoss) {
  ThreadPool pool(1, false);
  for (float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    Box box;
    const LinearCrossEntropy op = loss_op(box, {4, 3, 20, 0}, true);
    for (int i = 0; i < 4; ++i) op.targets.as<std::int32_t>()[i] = i;
    op.x.as<float>()[4] = bad;
    run_op(pool, op);
    EXPECT_FALSE(std::isfinite(scalars_of(op.scalars).loss_sum)) << bad;
    EXPECT_TRUE(std::isfinite(op.losses.as<float>()[0]));
  }
}

TEST(LinearCrossEntropy, ATargetBeyondTheVocabularyIsLoudAndHarmless) {
  Box box;
  ThreadPool pool(2, false);
  const LinearCrossEntropy op = loss_op(box, {3, 4, 10, 0}, true), before = box.copy(op);
  for (int i = 0; i < 3; ++i) op.targets.as<std::int32_t>()[i] = 1000000000;
  run_op(pool, op);
  EXPECT_TRUE(std::isnan(scalars_of(op.scalars).loss_sum));
  for (std::int64_t i = 0; i < op.dx.numel(); ++i) EXPECT_EQ(op.dx.as<float>()[i], 0.0f);
  EXPECT_EQ(std::memcmp(op.dw.data, before.dw.data, op.dw.bytes()), 0);
}

TEST(LinearCrossEntropy, ChunkOfRowsDecidesTheScratch) {
  Box box;
  const Target target = cpu_target(1);
  LinearCrossEntropy op{.x = Tensor(nullptr, {8192, 768}, Dtype::kF32), .w = Tensor(nullptr, {50304, 768}, Dtype::kF32)};
  const std::size_t automatic = scratch_bytes(target, op);
  EXPECT_LT(automatic, std::size_t{65} << 20);  // all logits: 1.6 GB
  op.chunk_rows = 64;
  EXPECT_LT(scratch_bytes(target, op), std::size_t{14} << 20);
}

TEST(LinearCrossEntropy, ErrorsNameTheTensor) {
  Box box;
  LinearCrossEntropy op = loss_op(box, {3, 4, 10, 0}, true);
  op.dx = Tensor{};
  EXPECT_NE(check_message(op).find("dw is given without dx"), std::string::npos);
  op = loss_op(box, {3, 4, 10, 0}, false);
  op.w = box.normal({10, 5});
  EXPECT_EQ(check_message(op), "linear_cross_entropy: w has shape [10, 5], expected [10, 4]");
}

}  // namespace
}  // namespace flashgpt::testing
