// The small parts that implementations share: mask and block ranges, score and its derivative, online softmax, task tables, vector maths.
#include "attention/case.h"
#include "attention/cpu/score_vec.h"
#include "attention/online_softmax.h"
#include "attention/schedule.h"

namespace flashgpt::attention::testing {
namespace {

TEST(Mask, RangesAgreeWithVisible) {
  for (Index left : {-1, 0, 2, 9})
    for (Index right : {-1, 0, 1, 7})
      for (Index len_q : {1, 4, 7})
        for (Index len_k : {0, 1, 5, 9}) {
          const Mask m{left, right};
          for (Index first = 0; first < len_q; ++first)
            for (Index last = first + 1; last <= len_q; ++last) {
              const Range any = keys_of(m, first, last, len_q, len_k), all = keys_of_all(m, first, last, len_q, len_k);
              for (Index j = 0; j < len_k; ++j) {
                int seen = 0;
                for (Index i = first; i < last; ++i) seen += visible(m, i, j, len_q, len_k);
                if (seen > 0) {
                  EXPECT_TRUE(any.first <= j && j < any.last);
                }
                if (last - first == 1) {
                  EXPECT_EQ(seen > 0, any.first <= j && j < any.last);
                }
                EXPECT_EQ(seen == last - first, all.first <= j && j < all.last);
              }
            }
          for (Index first = 0; first < len_k; ++first)
            for (Index last = first + 1; last <= len_k; ++last) {
              const Range queries = queries_of(m, first, last, len_q, len_k);
              for (Index i = 0; i < len_q; ++i) {
                bool seen = false;
                for (Index j = first; j < last; ++j) seen |= visible(m, i, j, len_q, len_k);
                if (seen) {
                  EXPECT_TRUE(queries.first <= i && i < queries.last);
                }
              }
            }
        }
}

TEST(Score, DerivativeIsAFiniteDifference) {
  for (float cap : {0.0f, 3.0f})
    for (float slope : {0.0f, 0.25f}) {
      const Score s{0.3f, cap, slope};
      for (double x : {-20.0, -1.0, 0.0, 0.5, 7.0}) {
        const double h = 1e-6;
        EXPECT_NEAR(score(s, x, 3).derivative, (score(s, x + h, 3).value - score(s, x - h, 3).value) / (2 * h), 1e-7);
      }
    }
  EXPECT_EQ(score(Score{1, 15, 0}, 1e30f, 0).value, 15.0f);  // saturates
  EXPECT_EQ(score(Score{1, 15, 0}, -1e30f, 0).value, -15.0f);
}

TEST(OnlineSoftmax, AnyOrderOfPartsGivesTheWhole) {
  std::mt19937 rng(1);
  std::normal_distribution<double> d(0, 30);
  std::vector<double> s(40), v(40);
  for (double& x : s) x = d(rng);
  for (double& x : v) x = d(rng);
  s[7] = -INFINITY;
  double total = 0, want = 0, top = -INFINITY;
  for (double x : s) top = std::max(top, x);
  for (std::size_t i = 0; i < 40; ++i) total += std::exp(s[i] - top), want += std::exp(s[i] - top) * v[i];
  want /= total;
  for (std::size_t cut : {0u, 1u, 20u, 40u}) {
    SoftmaxState<double> a, b;
    double oa = 0, ob = 0;
    for (std::size_t i = 0; i < 40; ++i) {
      auto& state = i < cut ? a : b;
      double& o = i < cut ? oa : ob;
      const auto f = merge(state, SoftmaxState<double>{s[i], 1.0});
      o = o * f.a + v[i] * f.b;
    }
    double weighted = 0;
    MergeFactors<double> w{};
    const double lse = merge_normalised(log_sum_exp(a), log_sum_exp(b), w);
    if (a.sum > 0) weighted += w.a * oa / a.sum;
    if (b.sum > 0) weighted += w.b * ob / b.sum;
    const auto f = merge(a, b);
    EXPECT_NEAR((oa * f.a + ob * f.b) / a.sum, want, 1e-12 * std::abs(want));
    EXPECT_NEAR(log_sum_exp(a), top + std::log(total), 1e-12);
    EXPECT_NEAR(lse, top + std::log(total), 1e-12);
    EXPECT_NEAR(weighted, want, 1e-12 * std::abs(want));
  }
  SoftmaxState<float> nothing, other;
  const auto f = merge(nothing, other);
  EXPECT_EQ(f.a, 0);
  EXPECT_EQ(log_sum_exp(nothing), -kInf);
  add(nothing, kNan);
  EXPECT_TRUE(std::isnan(nothing.sum));
}

TEST(Schedule, TaskTableSkipsEmptySequences) {
  Problem p;
  p.varlen = true;
  p.batch = 6;
  const std::vector<std::int32_t> cu{0, 0, 5, 5, 12, 12, 12};
  p.cu_q = p.cu_k = cu.data();
  std::vector<std::byte> memory(table_bytes(p.batch));
  const TaskTable t = make_table(p, memory.data(), [](const Sequence& s) { return ceil_div(s.len_q, 3); });
  ASSERT_EQ(t.entries, 2);
  EXPECT_EQ(t.tasks(), 2 + 3);
  const Index want[] = {1, 1, 3, 3, 3};
  for (Index task = 0; task < t.tasks(); ++task) EXPECT_EQ(t.sequence[t.find(task)], want[task]);
}

TEST(Schedule, SplitsAreBoundedByThoseOfTheLongest) {
  for (Index heads : {1, 2, 12, 96})
    for (Index all : {100, 1000, 4000, 100000})
      for (Index keys = 1; keys <= all; keys = keys * 3 / 2 + 1) {
        const Index n = key_splits(keys, all, heads);
        EXPECT_GE(n, 1);
        EXPECT_LE(n, key_splits(all, all, heads));
        if (n > 1) {
          EXPECT_GE(keys / n, kLeastSplit / 2);
        }
      }
  EXPECT_GE(key_splits(16384, 16384, 1), 8);  // one head still makes work for many threads
  EXPECT_EQ(key_splits(1024, 32 * 1024, 12), 1);
}

struct Exp2Kernel {
  template <int W> [[gnu::always_inline]] void run(const float* x, float* y, Index n) const {
    for (Index i = 0; i < n; i += W) cpu::store<W>(y + i, cpu::exp2_of<W>(cpu::load<W>(x + i)));
  }
};
struct TanhKernel {
  template <int W> [[gnu::always_inline]] void run(const float* x, float* y, Index n) const {
    for (Index i = 0; i < n; i += W) cpu::store<W>(y + i, cpu::tanh_vec<W>(cpu::load<W>(x + i)));
  }
};

TEST(VectorMaths, Exp2AndTanhMeetTheirStatedErrors) {
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > cpu_target(1).isa) continue;
    constexpr Index kN = 1 << 18;
    std::vector<float> x(kN), y(kN);
    for (Index i = 0; i < kN; ++i) x[i] = -126.0f + 252.0f * static_cast<float>(i) / kN;
    simd::call(isa, Exp2Kernel{}, static_cast<const float*>(x.data()), y.data(), kN);
    double worst = 0;
    for (Index i = 0; i < kN; ++i) worst = std::max(worst, std::abs(y[i] / std::exp2(static_cast<double>(x[i])) - 1));
    EXPECT_LT(worst, 2e-7) << name_of(isa);
    x[0] = 0, x[1] = -kInf, x[2] = kNan, x[3] = -127, x[4] = -1e30f, x[5] = 1;
    simd::call(isa, Exp2Kernel{}, static_cast<const float*>(x.data()), y.data(), Index{16});
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(y[4], 0.0f);
    EXPECT_EQ(y[5], 2.0f);

    for (Index i = 0; i < kN; ++i) x[i] = -12.0f + 24.0f * static_cast<float>(i) / kN;
    simd::call(isa, TanhKernel{}, static_cast<const float*>(x.data()), y.data(), kN);
    worst = 0;
    for (Index i = 0; i < kN; ++i)
      if (x[i] != 0) worst = std::max(worst, std::abs(y[i] / std::tanh(static_cast<double>(x[i])) - 1));
    EXPECT_LT(worst, 4e-7) << name_of(isa);
    x[0] = kInf, x[1] = -kInf, x[2] = kNan, x[3] = 1e30f;
    simd::call(isa, TanhKernel{}, static_cast<const float*>(x.data()), y.data(), Index{16});
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], -1.0f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 1.0f);
  }
}

TEST(Alibi, SlopesOfThePaper) {
  float eight[8], twelve[12];
  alibi_slopes(8, eight);
  for (int i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(eight[i], std::exp2(-static_cast<float>(i + 1)));
  alibi_slopes(12, twelve);
  for (int i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(twelve[i], eight[i]);
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(twelve[8 + i], std::exp2(-0.5f * static_cast<float>(2 * i + 1)));
}

}  // namespace
}  // namespace flashgpt::attention::testing
