// Embedding against its twin and finite differences, and ids outside the table.
#include "ops/embedding.h"

#include "ops/op_case.h"
#include "ops/twin.h"

namespace flashgpt::testing {
namespace {

struct Case {
  std::int64_t n, c, vocabulary, places;
};
constexpr Case kCases[] = {{0, 3, 4, 4}, {1, 1, 1, 1}, {5, 7, 3, 5}, {100, 64, 10, 20}, {50, 33, 50257, 64}, {3, 768, 9, 3}};

Embedding forward(Box& box, Case z, bool place) {
  Embedding op{.y = box.filled({z.n, z.c}, kNan), .tokens = box.ids(z.n, 0, z.vocabulary), .table = box.normal({z.vocabulary, z.c})};
  if (place) {
    op.positions = box.ids(z.n, 0, z.places);
    op.position_table = box.normal({z.places, z.c});
  }
  return op;
}
EmbeddingGrad backward(Box& box, Case z, bool place) {
  EmbeddingGrad op{.dtable = box.normal({z.vocabulary, z.c}), .dy = box.normal({z.n, z.c}), .tokens = box.ids(z.n, 0, z.vocabulary)};
  if (place) {
    op.positions = box.ids(z.n, 0, z.places);
    op.dposition_table = box.normal({z.places, z.c});
  }
  return op;
}

TEST(Embedding, LikeItsTwin) {
  for (Case z : kCases) {
    for (bool place : {false, true}) {
      Box box;
      expect_like_twin(box, forward(box, z, place), 1e-7);
      expect_like_twin(box, backward(box, z, place), 2e-6);
      if (::testing::Test::HasFatalFailure()) FAIL() << z.n << " x " << z.c << " place " << place;
    }
  }
}

TEST(Embedding, GradientsAgainstDifferences) {
  Box box;
  const Case z{6, 3, 4, 3};
  const Embedding op = box.widen(forward(box, z, true));
  EmbeddingGrad grad = box.widen(backward(box, z, true));
  grad.tokens = op.tokens;
  grad.positions = op.positions;
  std::fill_n(grad.dtable.as<double>(), grad.dtable.numel(), 0.0);
  std::fill_n(grad.dposition_table.as<double>(), grad.dposition_table.numel(), 0.0);
  twin<double>(grad);
  auto loss = [&] {
    twin<double>(op);
    return dot(op.y, grad.dy);
  };
  expect_gradient("table", op.table, grad.dtable, loss);
  expect_gradient("position_table", op.position_table, grad.dposition_table, loss);
}

TEST(Embedding, AnIdOutsideTheTableTouchesNothing) {
  Box box;
  ThreadPool pool(2, false);
  Embedding op = forward(box, {3, 20, 5, 4}, true);
  op.tokens.as<std::int32_t>()[0] = 5;
  op.positions.as<std::int32_t>()[2] = -1;
  run_op(pool, op);
  EXPECT_TRUE(std::isnan(op.y.as<float>()[0]));
  EXPECT_FALSE(std::isnan(op.y.as<float>()[20]));
  EXPECT_TRUE(std::isnan(op.y.as<float>()[40]));
  EmbeddingGrad grad = backward(box, {3, 20, 5, 4}, true);
  grad.tokens = op.tokens;
  grad.positions = op.positions;
  const EmbeddingGrad before = box.copy(grad);
  run_op(pool, grad);
  const std::int64_t token = op.tokens.as<std::int32_t>()[1];
  for (std::int64_t v = 0; v < 5; ++v)
    for (std::int64_t c = 0; c < 20; ++c)
      EXPECT_EQ(grad.dtable.as<float>()[v * 20 + c],
                before.dtable.as<float>()[v * 20 + c] + (v == token ? grad.dy.as<float>()[20 + c] : 0.0f));
}

TEST(Embedding, ErrorsNameTheTensor) {
  Box box;
  Embedding op = forward(box, {3, 20, 5, 4}, true);
  op.positions = Tensor{};
  EXPECT_NE(check_message(op).find("positions is missing"), std::string::npos);
  op = forward(box, {3, 20, 5, 4}, false);
  op.tokens = box.normal({3});
  EXPECT_EQ(check_message(op), "embedding: tokens is fp32, expected int32");
}

}  // namespace
}  // namespace flashgpt::testing
