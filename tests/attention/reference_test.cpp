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
  const std::pair<Tensor, Tensor> pairs[] = {
      {ops.forward.q, ops.backward.dq}, {ops.forward.k, ops.backward.dk}, {ops.forward.v, ops.backward.dv}};
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
