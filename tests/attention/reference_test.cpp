// The reference itself: gradients against finite differences of its own forward, in double.
#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

// sum(o * dout) + sum(lse * dlse)
double objective(const Ops<double>& ops) {
  reference_forward(ops.forward);
  const std::vector<double> o = values(ops.forward.o), g = values(ops.backward.dout);
  double sum = 0;
  for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * g[i];
  if (ops.backward.dlse) {
    const std::vector<double> l = values(ops.forward.lse), gl = values(ops.backward.dlse);
    for (std::size_t i = 0; i < l.size(); ++i)
      if (std::isfinite(l[i])) sum += l[i] * gl[i];
  }
  return sum;
}

void check_gradients(const Case& c) {
  SCOPED_TRACE(c.name);
  Ops<double> ops;
  build(c, 3, ops);
  reference_backward(ops.backward);
  std::vector<std::pair<Tensor, Tensor>> pairs = {
      {ops.forward.q, ops.backward.dq}, {ops.forward.k, ops.backward.dk}, {ops.forward.v, ops.backward.dv}};
  if (c.spec.sink) {
    each(ops.backward.dsink, [&](std::int64_t, std::int64_t o) { static_cast<double*>(ops.backward.dsink.data)[o] -= 0.5; });
    pairs.emplace_back(ops.forward.sink, ops.backward.dsink);
  }
  int which = 0;
  for (const auto& [x, dx] : pairs) {
    const std::vector<double> gradient = values(dx);
    each(x, [&](std::int64_t n, std::int64_t o) {
      double& value = static_cast<double*>(x.data)[o];
      const double old = value, h = 1e-5;
      value = old + h;
      const double up = objective(ops);
      value = old - h;
      const double down = objective(ops);
      value = old;
      ASSERT_NEAR(gradient[static_cast<std::size_t>(n)], (up - down) / (2 * h), 1e-6) << "tensor " << which << " element " << n;
    });
    ++which;
  }
}

TEST(AttentionReference, GradientsAreFiniteDifferences) {
  check_gradients({.name = "full", .spec = dense(1, 4, 5, 2, 1, 3), .dlse = true});
  check_gradients({.name = "causal, more queries", .spec = dense(1, 6, 4, 1, 1, 3, true), .dlse = true});
  check_gradients({.name = "softcap, alibi",
                   .spec =
                       [] {
                         auto s = dense(1, 4, 5, 2, 2, 3, true);
                         s.softcap = 0.7f;
                         s.alibi = true;
                         s.v_head_dim = 2;
                         return s;
                       }(),
                   .dlse = true});
  check_gradients({.name = "window, varlen",
                   .spec =
                       [] {
                         auto s = dense(0, 0, 0, 2, 2, 2);
                         s.window_left = 1;
                         s.window_right = 1;
                         return s;
                       }(),
                   .lens_q = {3, 0, 2},
                   .lens_k = {4, 1, 1},
                   .tail_q = 1});
}

template <class F> AttentionSpec changed(AttentionSpec s, F&& change) {
  change(s);
  return s;
}
void blocks_of_three_by_two(AttentionSpec& s) { s.block_mask = true, s.block_q = 3, s.block_k = 2; }

// Every block none, partial or full, another choice for each head: also full blocks that the mask would cut, and rows without a block.
OwnedBlocks mixed_blocks(const AttentionSpec& s) {
  const Index rows = (s.max_q + s.block_q - 1) / s.block_q, columns = (s.max_k + s.block_k - 1) / s.block_k;
  std::vector<Seen> seen;
  for (Index n = 0; n < s.heads * rows * columns; ++n) seen.push_back(static_cast<Seen>(n * 7 / 3 % 3));
  return make_blocks(1, s.heads, rows, columns, seen);
}

TEST(AttentionReference, GradientsOfSinkDropoutAndBlocks) {
  const AttentionSpec small = dense(1, 5, 6, 2, 1, 3, true);
  check_gradients(
      {.name = "sink, rows without keys", .spec = changed(dense(2, 5, 3, 2, 1, 3, true), [](auto& s) { s.sink = true; }), .dlse = true});
  check_gradients({.name = "dropout", .spec = changed(small, [](auto& s) { s.dropout = 0.4f; }), .dlse = true});
  check_gradients({.name = "blocks", .spec = changed(small, blocks_of_three_by_two), .dlse = true, .blocks = mixed_blocks});
  check_gradients({.name = "all, softcap, alibi, varlen",
                   .spec = changed(dense(0, 0, 0, 2, 2, 2, true),
                                   [](auto& s) {
                                     s.sink = s.alibi = true;
                                     s.dropout = 0.3f, s.softcap = 1.5f;
                                     blocks_of_three_by_two(s);
                                   }),
                   .lens_q = {4, 0, 5},
                   .lens_k = {4, 1, 6},
                   .tail_q = 1,
                   .dlse = true,
                   .blocks = mixed_blocks});
}

// The sum over many masks is the output without dropout.
TEST(AttentionReference, DropoutKeepsTheExpectation) {
  Case c{.name = "", .spec = dense(1, 16, 32, 2, 2, 4)};
  Ops<double> plain;
  build(c, 1, plain);
  reference_forward(plain.forward);
  const std::vector<double> want = values(plain.forward.o);
  c.spec.dropout = 0.25f;
  std::vector<double> mean(want.size());
  constexpr int kMasks = 400;
  for (c.offset = 0; c.offset < kMasks; ++c.offset) {
    Ops<double> ops;
    build(c, 1, ops);
    reference_forward(ops.forward);
    const std::vector<double> o = values(ops.forward.o);
    for (std::size_t i = 0; i < o.size(); ++i) mean[i] += o[i] / kMasks;
    EXPECT_TRUE(values(ops.forward.lse) == values(plain.forward.lse));
  }
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(mean[i], want[i], 0.1);
}

TEST(AttentionReference, BlocksOfAMaskAreTheMask) {
  for (const auto& [q, k] : {std::pair{13, 13}, {9, 20}, {20, 9}})
    for (const Index left : {Index{-1}, Index{4}}) {
      Case c{.name = "", .spec = dense(1, q, k, 2, 1, 4, true)};
      c.spec.window_left = left;
      Ops<double> plain;
      build(c, 1, plain);
      reference_forward(plain.forward);
      c.spec.block_mask = true, c.spec.block_q = 4, c.spec.block_k = 3;
      c.blocks = [&](const AttentionSpec& s) { return blocks_of_mask(s, q, k); };
      Ops<double> blocks;
      build(c, 1, blocks);
      reference_forward(blocks.forward);
      EXPECT_TRUE(values(blocks.forward.o) == values(plain.forward.o));
      EXPECT_TRUE(values(blocks.forward.lse) == values(plain.forward.lse));
    }
}

TEST(AttentionReference, SinkTakesItsShare) {
  Case c{.name = "", .spec = dense(1, 3, 1, 1, 1, 4, true)};
  c.spec.sink = true;
  Ops<double> ops;
  build(c, 1, ops);
  static_cast<double*>(ops.forward.sink.data)[0] = 0.75;
  reference_forward(ops.forward);
  const std::vector<double> lse = values(ops.forward.lse), o = values(ops.forward.o), v = values(ops.forward.v);
  EXPECT_DOUBLE_EQ(lse[0], 0.75);  // no key: the sink alone
  EXPECT_EQ(o[0], 0);
  EXPECT_DOUBLE_EQ(o[8] / v[0], 1 - std::exp(0.75 - lse[2]));
}

TEST(AttentionReference, RowWithoutKeys) {
  Ops<double> ops;
  build({.spec = dense(1, 3, 1, 1, 1, 4, true)}, 1, ops);
  reference_forward(ops.forward);
  reference_backward(ops.backward);
  const std::vector<double> o = values(ops.forward.o), lse = values(ops.forward.lse), dq = values(ops.backward.dq),
                            v = values(ops.forward.v);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(o[i], 0);
    EXPECT_EQ(dq[i], 0);
  }
  EXPECT_EQ(lse[0], -kInf);
  EXPECT_EQ(lse[1], -kInf);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(o[8 + i], v[i]);
}

}  // namespace
}  // namespace flashgpt::attention::testing
