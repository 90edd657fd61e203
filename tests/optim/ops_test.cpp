// Norm, AdamW and Adafactor against their formulas in double, five steps long; skipped steps, zero gradients, tiny shapes.
#include "optim/ops.h"

#include "ops/op_case.h"
#include "optim/twin.h"

namespace flashgpt::testing {
namespace {

TEST(SumSquares, FixedTreeInDouble) {
  for (std::int64_t n : {0, 1, 5, 16, 1000, 16384, 16385, 100003}) {
    Box box;
    const Tensor g = box.normal({n}, 1e-3f);
    double want = 4.0;
    for (std::int64_t i = 0; i < n; ++i) want += static_cast<double>(g.as<float>()[i]) * static_cast<double>(g.as<float>()[i]);
    StepScalars start;
    start.norm_sq = 4.0;  // the op adds
    double first = 0;
    for (Isa isa : instruction_sets()) {
      const Isa before = simd::use_isa(isa);
      for (int threads = 1; threads <= 3; ++threads) {
        ThreadPool pool(threads, false);
        const SumSquares op{.scalars = box.scalars(start), .g = g};
        run_op(pool, op);
        const double got = scalars_of(op.scalars).norm_sq;
        EXPECT_NEAR(got, want, 1e-12 * want);
        if (first == 0) first = got;
        EXPECT_EQ(got, first);
      }
      simd::use_isa(before);
    }
  }
}

StepScalars finish(StepScalars s) {
  Box box;
  ThreadPool pool(1, false);
  const FinishNorm op{.scalars = box.scalars(s)};
  run_op(pool, op);
  return scalars_of(op.scalars);
}

TEST(FinishNorm, Clips) {
  StepScalars s;
  s.norm_sq = 100.0;
  s.max_norm = 1.0f;
  EXPECT_FLOAT_EQ(finish(s).grad_norm, 10.0f);
  EXPECT_FLOAT_EQ(finish(s).grad_scale, 0.1f);
  s.max_norm = 0.0f;  // no clipping
  EXPECT_EQ(finish(s).grad_scale, 1.0f);
  s.max_norm = 20.0f;
  EXPECT_EQ(finish(s).grad_scale, 1.0f);
  s.norm_sq = 0.0;  // 0 / 0
  EXPECT_EQ(finish(s).grad_scale, 1.0f);
  EXPECT_EQ(finish(s).skip, 0);
}

TEST(FinishNorm, TakesTheLossScaleOut) {
  StepScalars s;
  s.loss_scale = 1024.0f;
  s.norm_sq = 100.0 * 1024 * 1024;
  s.max_norm = 1.0f;
  EXPECT_FLOAT_EQ(finish(s).grad_norm, 10.0f);
  EXPECT_FLOAT_EQ(finish(s).grad_scale, 0.1f / 1024);
}

TEST(FinishNorm, SkipsWhatIsNotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (double bad : {inf, nan}) {
    StepScalars s;
    s.norm_sq = bad;
    EXPECT_EQ(finish(s).skip, 1);
    s = {};
    s.loss_sum = bad;
    EXPECT_EQ(finish(s).skip, 1);
  }
  StepScalars s;
  s.skip = 1;  // of the step before
  s.norm_sq = 1;
  EXPECT_EQ(finish(s).skip, 0);
}

constexpr std::int64_t kSizes[] = {0, 1, 5, 17, 1000, 40000};

TEST(AdamW, FiveStepsLikeTheFormula) {
  for (std::int64_t n : kSizes) {
    Box box;
    AdamW op{.w = box.normal({n}), .m = box.filled({n}, 0), .v = box.filled({n}, 0), .weight_decay = 0.1f};
    AdamW wide;
    for (int step = 1; step <= 5; ++step) {
      StepScalars s;
      s.learning_rate = 1e-2f;
      s.step = step;
      s.grad_scale = 0.5f;
      op.g = box.normal({n}, 0.3f);
      op.scalars = box.scalars(s);
      if (step == 1) wide = box.widen(op);
      wide.g = box.widen(op).g;
      wide.scalars = op.scalars;
      twin<double>(wide);
      expect_like_twin(box, op, 1e-6, &op);
      expect_close("w", op.w, wide.w, 1e-6);
      expect_close("m", op.m, wide.m, 1e-6);
      expect_close("v", op.v, wide.v, 1e-6);
      if (::testing::Test::HasFatalFailure()) FAIL() << n << " step " << step;
    }
  }
}

TEST(AdamW, FirstStepIsTheSignOfTheGradient) {
  Box box;
  StepScalars s;
  s.learning_rate = 0.5f;
  s.step = 1;
  AdamW op{.w = box.filled({3}, 1), .m = box.filled({3}, 0), .v = box.filled({3}, 0), .g = box.filled({3}, 0), .scalars = box.scalars(s)};
  op.g.as<float>()[0] = 1e-3f;
  op.g.as<float>()[1] = -7.0f;
  ThreadPool pool(1, false);
  run_op(pool, op);
  EXPECT_NEAR(op.w.as<float>()[0], 0.5f, 1e-4f);
  EXPECT_NEAR(op.w.as<float>()[1], 1.5f, 1e-4f);
  EXPECT_EQ(op.w.as<float>()[2], 1.0f);
}

struct Case {
  Shape shape;
  bool relative;
};

Adafactor adafactor(Box& box, const Case& z) {
  Adafactor op{.w = box.normal(z.shape, 0.05f), .col = box.filled({z.shape[-1]}, 0), .weight_decay = 0.01f, .relative_step = z.relative};
  if (z.shape.rank == 2) op.row = box.filled({z.shape[0]}, 0);
  return op;
}

TEST(Adafactor, FiveStepsLikeItsTwin) {
  for (const Shape& shape : {Shape{0}, Shape{1}, Shape{7}, Shape{40000}, Shape{0, 3}, Shape{3, 0}, Shape{1, 1}, Shape{1, 5}, Shape{5, 1},
                             Shape{3, 7}, Shape{33, 17}, Shape{300, 64}, Shape{2, 20000}, Shape{5000, 3}}) {
    for (bool relative : {false, true}) {
      Box box;
      Adafactor op = adafactor(box, {shape, relative}), wide;
      for (int step = 1; step <= 5; ++step) {
        StepScalars s;
        s.learning_rate = 1e-2f;
        s.step = step;
        s.grad_scale = 0.5f;
        op.g = box.normal(shape, step == 3 ? 5.0f : 0.3f);  // step 3 is clipped by rms(u)
        op.scalars = box.scalars(s);
        if (step == 1) wide = box.widen(op);
        wide.g = box.widen(op).g;
        wide.scalars = op.scalars;
        twin<double>(wide);
        expect_like_twin(box, op, 3e-6, &op);
        expect_close("w", op.w, wide.w, 3e-6);
        if (::testing::Test::HasFatalFailure()) FAIL() << shape.str() << " step " << step << " relative " << relative;
      }
    }
  }
}

TEST(Adafactor, FirstStepForgetsTheState) {  // beta2 is 0 at step 1
  for (const Shape& shape : {Shape{6}, Shape{3, 5}}) {
    Box box;
    StepScalars s;
    s.learning_rate = 1e-2f;
    s.step = 1;
    Adafactor clean = adafactor(box, {shape, false});
    clean.g = box.normal(shape);
    clean.scalars = box.scalars(s);
    Adafactor dirty = box.copy(clean);
    for (std::int64_t i = 0; i < dirty.col.numel(); ++i) dirty.col.as<float>()[i] = kNan;
    for (std::int64_t i = 0; dirty.row && i < dirty.row.numel(); ++i) dirty.row.as<float>()[i] = kNan;
    ThreadPool pool(1, false);
    run_op(pool, clean);
    run_op(pool, dirty);
    EXPECT_EQ(std::memcmp(clean.w.data, dirty.w.data, clean.w.bytes()), 0);
    EXPECT_TRUE(std::isfinite(dirty.w.as<float>()[0]));
  }
}

TEST(Adafactor, ZeroGradientsChangeNothingButDecay) {
  for (const Shape& shape : {Shape{6}, Shape{3, 5}, Shape{1, 1}}) {
    Box box;
    ThreadPool pool(1, false);
    Adafactor op = adafactor(box, {shape, true});
    op.weight_decay = 0;
    op.g = box.filled(shape, 0);
    const Adafactor before = box.copy(op);
    for (int step = 1; step <= 3; ++step) {
      StepScalars s;
      s.learning_rate = 1e-2f;
      s.step = step;
      op.scalars = box.scalars(s);
      run_op(pool, op);
    }
    EXPECT_EQ(std::memcmp(op.w.data, before.w.data, op.w.bytes()), 0);
    // and a zero row in a matrix that has gradients elsewhere
    if (shape.rank == 2 && shape[0] > 1) {
      op.g.as<float>()[0] = 1.0f;
      run_op(pool, op);
      for (std::int64_t i = 0; i < op.w.numel(); ++i) EXPECT_TRUE(std::isfinite(op.w.as<float>()[i]));
      EXPECT_EQ(op.w.as<float>()[shape[1]], before.w.as<float>()[shape[1]]);
    }
  }
}

TEST(Optimizers, SkipChangesNothing) {
  Box box;
  ThreadPool pool(2, false);
  StepScalars s;
  s.learning_rate = 1.0f;
  s.step = 3;
  s.skip = 1;
  AdamW adam{
      .w = box.normal({50}), .m = box.normal({50}), .v = box.filled({50}, 1), .g = box.filled({50}, kNan), .scalars = box.scalars(s)};
  const AdamW adam_before = box.copy(adam);
  run_op(pool, adam);
  for (auto t : {&AdamW::w, &AdamW::m, &AdamW::v}) EXPECT_EQ(std::memcmp((adam.*t).data, (adam_before.*t).data, (adam.*t).bytes()), 0);
  for (const Shape& shape : {Shape{50}, Shape{7, 9}}) {
    Adafactor factor = adafactor(box, {shape, true});
    factor.g = box.filled(shape, kNan);
    factor.scalars = box.scalars(s);
    const Adafactor before = box.copy(factor);
    run_op(pool, factor);
    for (auto t : {&Adafactor::w, &Adafactor::row, &Adafactor::col}) {
      if (!(factor.*t)) continue;
      EXPECT_EQ(std::memcmp((factor.*t).data, (before.*t).data, (factor.*t).bytes()), 0);
    }
  }
}

TEST(Optimizers, ErrorsNameTheTensor) {
  Box box;
  AdamW adam{.w = box.normal({5}), .m = box.normal({4}), .v = box.normal({5}), .g = box.normal({5}), .scalars = box.scalars({})};
  EXPECT_EQ(check_message(adam), "adamw: m has shape [4], expected as many elements as w [5]");
  Adafactor factor = adafactor(box, {{3, 4}, false});
  factor.g = box.normal({3, 4});
  EXPECT_EQ(check_message(factor), "adafactor: scalars is missing, expected uint8 [56]");
  factor.scalars = box.scalars({});
  factor.row = box.normal({4});
  EXPECT_EQ(check_message(factor), "adafactor: row has shape [4], expected [3]");
}

}  // namespace
}  // namespace flashgpt::testing
