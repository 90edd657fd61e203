// Faults of other trainers that lie in an op, replayed with the smallest trigger known.
#include "optim/ops.h"

#include "ops/op_case.h"
#include "ops/twin.h"
#include "optim/twin.h"

namespace flashgpt::testing {
namespace {

LinearCrossEntropy loss_op(Box& box, std::int64_t n, std::int64_t c, std::int64_t v) {
  return {.losses = box.filled({n}, kNan),
          .dx = box.filled({n, c}, kNan),
          .dw = box.filled({v, c}, 0),
          .x = box.normal({n, c}),
          .w = box.normal({v, c}),
          .targets = box.ids(n, 0, v)};
}

// Accumulation that averages each micro-batch by itself gives the 10 targets of one as much weight as the 90 of the other
// (unsloth PR 1134, torchtitan 1842, torchtune PR 1875). Two micro-batches must give the gradient of one batch.
TEST(Replay, AccumulationCountsTargetsNotMicroBatches) {
  constexpr std::int64_t kRows = 100, kC = 12, kV = 40;
  Box box;
  ThreadPool pool(2, false);
  StepScalars s;
  LinearCrossEntropy whole = loss_op(box, 2 * kRows, kC, kV);
  std::int32_t* targets = whole.targets.as<std::int32_t>();
  for (std::int64_t i = 10; i < kRows; ++i) targets[i] = -1;              // the first half has 10 valid targets
  for (std::int64_t i = kRows + 90; i < 2 * kRows; ++i) targets[i] = -1;  // the second 90
  s.inv_targets = 1.0f / 100;
  whole.scalars = box.scalars(s);
  LinearCrossEntropy part = box.copy(whole);
  run_op(pool, whole);
  for (std::int64_t first : {std::int64_t{0}, kRows}) {
    LinearCrossEntropy micro = part;
    micro.x = part.x.slice(0, first, kRows);
    micro.dx = part.dx.slice(0, first, kRows);
    micro.targets = part.targets.slice(0, first, kRows);
    micro.losses = part.losses.slice(0, first, kRows);
    run_op(pool, micro);
  }
  EXPECT_NEAR(scalars_of(part.scalars).loss_sum, scalars_of(whole.scalars).loss_sum, 1e-9 * scalars_of(whole.scalars).loss_sum);
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < kV * kC; ++i) {
    const double a = part.dw.as<float>()[i], b = whole.dw.as<float>()[i];
    difference += (a - b) * (a - b);
    size += b * b;
  }
  EXPECT_LT(std::sqrt(difference / size), 1e-6);
  EXPECT_GT(size, 0.0);
}

// All targets ignored: 0 / 0 = NaN (nanochat PR 603).
TEST(Replay, EveryTargetIgnored) {
  Box box;
  ThreadPool pool(2, false);
  LinearCrossEntropy op = loss_op(box, 8, 10, 15);
  std::fill_n(op.targets.as<std::int32_t>(), 8, -1);
  StepScalars s;
  s.inv_targets = std::numeric_limits<float>::infinity();  // 1 / 0 valid targets
  op.scalars = box.scalars(s);
  for (std::int64_t chunk : {0, 3}) {
    op.chunk_rows = chunk;
    run_op(pool, op);
    EXPECT_EQ(scalars_of(op.scalars).loss_sum, 0.0);
    for (std::int64_t i = 0; i < op.dx.numel(); ++i) EXPECT_EQ(op.dx.as<float>()[i], 0.0f);
    for (std::int64_t i = 0; i < op.dw.numel(); ++i) EXPECT_EQ(op.dw.as<float>()[i], 0.0f);
    for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(op.losses.as<float>()[i], 0.0f);
  }
}

// Fused linear cross-entropy with per-row losses and ignored targets: wrong or zero gradients at B, T, H, V = 2, 4, 10, 15 (Liger 968,
// 678).
TEST(Replay, PerRowLossesDoNotSpoilGradients) {
  Box box;
  LinearCrossEntropy op = loss_op(box, 2 * 4, 10, 15);
  op.targets.as<std::int32_t>()[1] = op.targets.as<std::int32_t>()[6] = -100;
  StepScalars s;
  s.inv_targets = 1.0f / 6;
  op.scalars = box.scalars(s);
  LinearCrossEntropy with;
  expect_like_twin(box, op, 2e-6, &with);
  ThreadPool pool(1, false);
  LinearCrossEntropy without = box.copy(op);
  without.losses = Tensor{};
  run_op(pool, without);
  EXPECT_EQ(std::memcmp(with.dx.data, without.dx.data, with.dx.bytes()), 0);
  EXPECT_EQ(std::memcmp(with.dw.data, without.dw.data, with.dw.bytes()), 0);
}

// 64 equal micro-batches must add up to 64 times one: a bf16 accumulator loses small gradients, another divided by 65536 (DeepSpeed 7837,
// 1800).
TEST(Replay, ManyMicroBatchesAddUp) {
  Box box;
  ThreadPool pool(2, false);
  LinearCrossEntropy op = loss_op(box, 16, 10, 15);
  StepScalars s;
  s.inv_targets = 1.0f / 16;
  op.scalars = box.scalars(s);
  const LinearCrossEntropy once = box.copy(op);
  run_op(pool, once);
  scalars_of(op.scalars).inv_targets = 1.0f / (16 * 64);
  for (int i = 0; i < 64; ++i) run_op(pool, op);
  for (std::int64_t i = 0; i < op.dw.numel(); ++i) EXPECT_NEAR(op.dw.as<float>()[i], once.dw.as<float>()[i], 2e-6f);
  EXPECT_NEAR(scalars_of(op.scalars).loss_sum, 64 * scalars_of(once.scalars).loss_sum, 1e-6);
}

StepScalars norm_of(ThreadPool& pool, Box& box, const Tensor& g, float max_norm, double loss_sum = 1.0) {
  StepScalars s;
  s.max_norm = max_norm;
  s.loss_sum = loss_sum;
  s.learning_rate = 1e-2f;
  s.step = 2;
  const Tensor scalars = box.scalars(s);
  run_op(pool, SumSquares{.scalars = scalars, .g = g});
  run_op(pool, FinishNorm{.scalars = scalars});
  return scalars_of(scalars);
}

// One inf in one gradient element turned m, v and the weights into NaN (DeepSpeed PR 8035); a NaN fell through a skip that asked for a
// finite value only (llm.c train_gpt2.cu). The step is skipped, and exactly that one.
TEST(Replay, OneInfInOneGradientSkipsOneStep) {
  for (float bad : {std::numeric_limits<float>::infinity(), kNan}) {
    Box box;
    ThreadPool pool(2, false);
    AdamW adam{.w = box.normal({30, 20}), .m = box.normal({30, 20}), .v = box.filled({30, 20}, 1), .g = box.normal({30, 20})};
    Adafactor factor{.w = box.normal({30, 20}), .row = box.filled({30}, 1), .col = box.filled({20}, 1), .g = adam.g};
    const AdamW adam_before = box.copy(adam);
    const Adafactor factor_before = box.copy(factor);
    const float good = adam.g.as<float>()[137];
    adam.g.as<float>()[137] = bad;
    StepScalars s = norm_of(pool, box, adam.g, 1.0f);
    EXPECT_EQ(s.skip, 1);
    adam.scalars = factor.scalars = box.scalars(s);
    run_op(pool, adam);
    run_op(pool, factor);
    for (auto t : {&AdamW::w, &AdamW::m, &AdamW::v}) EXPECT_EQ(std::memcmp((adam.*t).data, (adam_before.*t).data, (adam.*t).bytes()), 0);
    for (auto t : {&Adafactor::w, &Adafactor::row, &Adafactor::col})
      EXPECT_EQ(std::memcmp((factor.*t).data, (factor_before.*t).data, (factor.*t).bytes()), 0);

    adam.g.as<float>()[137] = good;
    s = norm_of(pool, box, adam.g, 1.0f);
    EXPECT_EQ(s.skip, 0);
    adam.scalars = factor.scalars = box.scalars(s);
    run_op(pool, adam);
    run_op(pool, factor);
    for (std::int64_t i = 0; i < 600; ++i) {
      EXPECT_TRUE(std::isfinite(adam.w.as<float>()[i]) && std::isfinite(factor.w.as<float>()[i]));
      EXPECT_NE(adam.w.as<float>()[i], adam_before.w.as<float>()[i]);
    }
  }
}

// A NaN loss with finite gradients must skip as well (llm.c: the check asks for the norm only).
TEST(Replay, NanLossSkips) {
  Box box;
  ThreadPool pool(1, false);
  EXPECT_EQ(norm_of(pool, box, box.normal({5}), 1.0f, std::numeric_limits<double>::quiet_NaN()).skip, 1);
}

// Clipping by the square of the norm: norm 10 with clip 1 scaled by 0.01, norm 0.6 with clip 0.5 not at all (llmq global_norm.cu).
TEST(Replay, ClipsByTheNormNotItsSquare) {
  Box box;
  ThreadPool pool(1, false);
  const Tensor g = box.filled({4}, 5.0f);  // norm 10
  EXPECT_FLOAT_EQ(norm_of(pool, box, g, 1.0f).grad_scale, 0.1f);
  const Tensor small = box.filled({4}, 0.3f);  // norm 0.6
  EXPECT_FLOAT_EQ(norm_of(pool, box, small, 0.5f).grad_scale, 0.5f / 0.6f);
}

// Adafactor: beta2 of step 1 is 0, never NaN (optax PR 1791); the rate of one parameter does not leak into the next (transformers PR 9751).
TEST(Replay, AdafactorParametersDoNotShareARate) {
  Box box;
  ThreadPool pool(1, false);
  StepScalars s;
  s.learning_rate = 1e-2f;
  s.step = 1;
  const Tensor scalars = box.scalars(s);
  Adafactor large{.w = box.filled({4, 4}, 100.0f),
                  .row = box.filled({4}, 0),
                  .col = box.filled({4}, 0),
                  .g = box.normal({4, 4}),
                  .scalars = scalars,
                  .relative_step = true};
  Adafactor second{.w = box.normal({4, 4}),
                   .row = box.filled({4}, 0),
                   .col = box.filled({4}, 0),
                   .g = box.normal({4, 4}),
                   .scalars = scalars,
                   .relative_step = true};
  const Adafactor alone = box.copy(second);
  run_op(pool, large);
  run_op(pool, second);
  run_op(pool, alone);
  EXPECT_EQ(std::memcmp(second.w.data, alone.w.data, alone.w.bytes()), 0);
  EXPECT_TRUE(std::isfinite(alone.w.as<float>()[0]));
  EXPECT_EQ(std::memcmp(scalars.data, &s, sizeof s), 0);
}

// Zero-size parameters (DeepSpeed 8280).
TEST(Replay, ZeroSizeParameters) {
  Box box;
  ThreadPool pool(2, false);
  const Tensor none = box.raw({0, 8}, Dtype::kF32), scalars = box.scalars({});
  run_op(pool, SumSquares{.scalars = scalars, .g = none});
  run_op(pool, AdamW{.w = none, .m = none, .v = none, .g = none, .scalars = scalars});
  run_op(pool, Adafactor{.w = none, .row = box.raw({0}, Dtype::kF32), .col = box.filled({8}, 0), .g = none, .scalars = scalars});
  EXPECT_EQ(scalars_of(scalars).norm_sq, 0.0);
}

}  // namespace
}  // namespace flashgpt::testing
