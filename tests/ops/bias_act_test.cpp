// Activations against their twin and finite differences, in place, their relative accuracy and the ends of fp32.
#include "ops/bias_act.h"

#include "ops/op_case.h"
#include "ops/twin.h"

namespace flashgpt::testing {
namespace {

constexpr Activation kAll[] = {Activation::kNone, Activation::kGeluTanh, Activation::kGelu, Activation::kSwiGlu};
constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{0, 7}, {1, 1}, {5, 3}, {3, 16}, {40, 17}, {5, 768}, {300, 33}};

std::int64_t width(Activation a, std::int64_t f) { return a == Activation::kSwiGlu ? 2 * f : f; }

BiasAct forward(Box& box, Activation a, std::int64_t n, std::int64_t f, bool bias) {
  return {.y = box.filled({n, f}, kNan),
          .x = box.normal({n, width(a, f)}, 2.0f),
          .bias = bias ? box.normal({width(a, f)}) : Tensor{},
          .activation = a};
}
BiasActGrad backward(Box& box, Activation a, std::int64_t n, std::int64_t f, bool bias) {
  const std::int64_t wide = width(a, f);
  return {.dx = box.filled({n, wide}, kNan),
          .dbias = bias ? box.normal({wide}) : Tensor{},
          .dy = box.normal({n, f}),
          .x = a == Activation::kNone ? Tensor{} : box.normal({n, wide}, 2.0f),
          .bias = bias ? box.normal({wide}) : Tensor{},
          .activation = a};
}

TEST(BiasAct, LikeItsTwin) {
  for (Activation a : kAll) {
    for (auto [n, f] : kShapes) {
      for (bool bias : {false, true}) {
        Box box;
        expect_like_twin(box, forward(box, a, n, f, bias), 5e-7);
        expect_like_twin(box, backward(box, a, n, f, bias), 2e-6);
        if (::testing::Test::HasFatalFailure()) FAIL() << static_cast<int>(a) << ": " << n << " x " << f << " bias " << bias;
      }
    }
  }
}

TEST(BiasAct, InPlace) {
  ThreadPool pool(2, false);
  for (Activation a : kAll) {
    Box box;
    if (a != Activation::kSwiGlu) {
      BiasAct apart = forward(box, a, 20, 50, true), in_place = box.copy(apart);
      in_place.y = in_place.x;
      run_op(pool, apart);
      run_op(pool, in_place);
      EXPECT_EQ(std::memcmp(apart.y.data, in_place.y.data, apart.y.bytes()), 0);
    }
    const BiasActGrad apart = backward(box, a, 20, 50, true);
    BiasActGrad over_x = box.copy(apart), over_dy = box.copy(apart);
    run_op(pool, apart);
    auto expect_equal = [&](const BiasActGrad& other) {
      EXPECT_EQ(std::memcmp(apart.dx.data, other.dx.data, apart.dx.bytes()), 0);
      EXPECT_EQ(std::memcmp(apart.dbias.data, other.dbias.data, apart.dbias.bytes()), 0);
    };
    if (a != Activation::kNone) {
      over_x.dx = over_x.x;
      run_op(pool, over_x);
      expect_equal(over_x);
    }
    if (a != Activation::kSwiGlu) {
      over_dy.dx = over_dy.dy;
      run_op(pool, over_dy);
      expect_equal(over_dy);
    } else {
      EXPECT_NE(check_message(forward(box, a, 3, 0, false)), "");
      over_dy.dx.data = over_dy.dy.data;
      EXPECT_NE(check_message(over_dy).find("dx is dy's memory"), std::string::npos);
    }
  }
}

TEST(BiasAct, GradientsAgainstDifferences) {
  for (Activation a : kAll) {
    Box box;
    const BiasAct op = box.widen(forward(box, a, 3, 5, true));
    BiasActGrad grad = box.widen(backward(box, a, 3, 5, true));
    if (a != Activation::kNone) grad.x = op.x;
    grad.bias = op.bias;
    std::fill_n(grad.dbias.as<double>(), grad.dbias.numel(), 0.0);
    twin<double>(grad);
    auto loss = [&] {
      twin<double>(op);
      return dot(op.y, grad.dy);
    };
    expect_gradient("x", op.x, grad.dx, loss);
    expect_gradient("bias", op.bias, grad.dbias, loss);
  }
}

// Relative accuracy, small tails too: at z = -5 the exponent is 17 and its rounding alone is worth 1e-6.
TEST(BiasAct, AccurateOverTheWholeRange) {
  ThreadPool pool(1, false);
  for (Activation a : {Activation::kGeluTanh, Activation::kGelu}) {
    Box box;
    constexpr std::int64_t kPoints = 40000;
    Tensor x = box.raw({1, kPoints}, Dtype::kF32);
    for (std::int64_t i = 0; i < kPoints; ++i) x.as<float>()[i] = -5.0f + 15.0f * static_cast<float>(i) / kPoints;
    const BiasAct op{.y = box.filled({1, kPoints}, kNan), .x = x, .activation = a};
    const BiasActGrad grad{.dx = box.filled({1, kPoints}, kNan), .dy = box.filled({1, kPoints}, 1.0f), .x = x, .activation = a};
    run_op(pool, op);
    run_op(pool, grad);
    double worst = 0, worst_slope = 0;
    for (std::int64_t i = 0; i < kPoints; ++i) {
      const double z = x.as<float>()[i], y = activation<double>(a, z), slope = activation_slope<double>(a, z);
      // 1 + tanh(u) cancels in double too, below 1e-12
      if (y != 0) worst = std::max(worst, std::abs(op.y.as<float>()[i] - y) / (std::abs(y) + 1e-9));
      worst_slope = std::max(worst_slope, std::abs(grad.dx.as<float>()[i] - slope) / (std::abs(slope) + 0.1));
    }
    EXPECT_LT(worst, 4e-6) << static_cast<int>(a);
    EXPECT_LT(worst_slope, 2e-6) << static_cast<int>(a);
  }
}

TEST(BiasAct, EndsOfTheRange) {
  ThreadPool pool(1, false);
  const float big[] = {-3e38f, -1e20f, -1e5f, -200.0f, 0.0f, 200.0f, 1e5f, 1e20f, 3e38f};
  for (Activation a : {Activation::kGeluTanh, Activation::kGelu, Activation::kSwiGlu}) {
    Box box;
    const std::int64_t n = std::size(big);
    BiasAct op = forward(box, a, n, 1, false);
    BiasActGrad grad = backward(box, a, n, 1, false);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < width(a, 1); ++j) op.x.as<float>()[i * width(a, 1) + j] = j == 0 ? big[i] : 1.0f;
    grad.x = op.x;
    for (std::int64_t i = 0; i < n; ++i) grad.dy.as<float>()[i] = 1.0f;
    run_op(pool, op);
    run_op(pool, grad);
    for (std::int64_t i = 0; i < n; ++i) {
      const float y = op.y.as<float>()[i], slope = grad.dx.as<float>()[i * width(a, 1)];
      if (big[i] > 0) {
        EXPECT_EQ(y, big[i]);
        EXPECT_NEAR(slope, 1.0f, 1e-6f);
      } else {
        EXPECT_NEAR(y, 0.0f, 1e-6f);
        EXPECT_NEAR(slope, big[i] == 0 ? 0.5f : 0.0f, 1e-6f);
      }
    }
    op.x.as<float>()[0] = kNan;  // a NaN must come out, or a broken model trains on
    run_op(pool, op);
    run_op(pool, grad);
    EXPECT_TRUE(std::isnan(op.y.as<float>()[0]));
    EXPECT_TRUE(std::isnan(grad.dx.as<float>()[0]));
  }
}

TEST(BiasAct, ErrorsNameTheTensor) {
  Box box;
  BiasAct op = forward(box, Activation::kSwiGlu, 4, 6, false);
  op.x = box.normal({4, 6});
  EXPECT_EQ(check_message(op), "bias_act: x has shape [4, 6], expected [4, 12]");
  BiasActGrad grad = backward(box, Activation::kGelu, 4, 6, false);
  grad.x = Tensor{};
  EXPECT_NE(check_message(grad).find("x is missing"), std::string::npos);
}

}  // namespace
}  // namespace flashgpt::testing
