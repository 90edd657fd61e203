// A NaN or an infinity reaches what it should and nothing else: a row of v, k, q or dout that a pair does not see leaves no trace in it.
#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

struct Poison {
  const char* name;
  std::int64_t token;
  int tensor;  // 0 q, 1 k, 2 v, 3 dout
  float value;
};

// Runs the case with one row of a tensor spoiled and without; returns both.
std::pair<Ops<float>, Ops<float>> run_both(const Case& c, const Poison& poison, ThreadPool& pool) {
  std::pair<Ops<float>, Ops<float>> ops;
  for (Ops<float>* o : {&ops.first, &ops.second}) {
    build(c, 1, *o);
    if (o == &ops.second) {
      const Tensor t = poison.tensor == 0   ? o->forward.q
                       : poison.tensor == 1 ? o->forward.k
                       : poison.tensor == 2 ? o->forward.v
                                            : o->backward.dout;
      const Tensor row = t.select(0, 0).select(0, poison.token).select(0, 0);
      static_cast<float*>(row.data)[row.dim(0) / 2] = poison.value;
    }
    launch_guarded(pool, o->forward);
    launch_guarded(pool, o->backward);
  }
  return ops;
}

// Rows [first, last) of head 0 are the same bits in both.
void expect_same(const std::string& what, const Tensor& a, const Tensor& b, std::int64_t first, std::int64_t last) {
  EXPECT_TRUE(values(a.select(0, 0).slice(0, first, last - first).select(1, 0)) ==
              values(b.select(0, 0).slice(0, first, last - first).select(1, 0)))
      << what;
}
bool any_nan(const Tensor& t, std::int64_t row) {
  for (const double x : values(t.select(0, 0).select(0, row).select(0, 0)))
    if (std::isnan(x)) return true;
  return false;
}

TEST(AttentionFinite, NothingLeaksThroughTheMask) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  ThreadPool pool(2, false);
  constexpr std::int64_t kN = 90, kAt = 37;  // not at a boundary of tiles
  for (const bool softcap : {false, true})
    for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > cpu_target(1).isa) continue;
      IsaGuard guard(isa);
      Case c{.name = "", .spec = dense(1, kN, kN, 1, 1, 24, true)};
      if (softcap) c.spec.softcap = 10;
      for (const float value : {kNan, kInf}) {
        {
          SCOPED_TRACE(cat("v, ", name_of(isa)));
          const auto [clean, spoiled] = run_both(c, {"v", kAt, 2, value}, pool);
          expect_same("o of queries before", clean.forward.o, spoiled.forward.o, 0, kAt);
          expect_same("dq of queries before", clean.backward.dq, spoiled.backward.dq, 0, kAt);
          EXPECT_FALSE(std::isfinite(values(spoiled.forward.o.select(0, 0).select(0, kAt + 1).select(0, 0))[12]));
          EXPECT_TRUE(any_nan(spoiled.backward.dq, kN - 1));
        }
        {
          SCOPED_TRACE(cat("k, ", name_of(isa)));
          const auto [clean, spoiled] = run_both(c, {"k", kAt, 1, value}, pool);
          expect_same("o of queries before", clean.forward.o, spoiled.forward.o, 0, kAt);
          expect_same("dq of queries before", clean.backward.dq, spoiled.backward.dq, 0, kAt);
        }
        {
          SCOPED_TRACE(cat("q, ", name_of(isa)));
          const auto [clean, spoiled] = run_both(c, {"q", kAt, 0, value}, pool);
          expect_same("o of queries before", clean.forward.o, spoiled.forward.o, 0, kAt);
          expect_same("o of queries behind", clean.forward.o, spoiled.forward.o, kAt + 1, kN);
          expect_same("dk of keys behind", clean.backward.dk, spoiled.backward.dk, kAt + 1, kN);
          expect_same("dv of keys behind", clean.backward.dv, spoiled.backward.dv, kAt + 1, kN);
          EXPECT_TRUE(any_nan(spoiled.backward.dk, 0));
        }
        {
          SCOPED_TRACE(cat("dout, ", name_of(isa)));
          const auto [clean, spoiled] = run_both(c, {"dout", kAt, 3, value}, pool);
          expect_same("dq of queries behind", clean.backward.dq, spoiled.backward.dq, kAt + 1, kN);
          expect_same("dk of keys behind", clean.backward.dk, spoiled.backward.dk, kAt + 1, kN);
          expect_same("dv of keys behind", clean.backward.dv, spoiled.backward.dv, kAt + 1, kN);
        }
      }
    }
}

}  // namespace
}  // namespace flashgpt::attention::testing
