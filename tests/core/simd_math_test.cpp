// The vector functions against double over their whole range, and the same bits from every instruction set.
#include "core/cpu/simd_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace flashgpt::simd {
namespace {

struct Exp {
  const float* x;
  float* y;
  template <int W> [[gnu::always_inline]] void run(std::int64_t n) const {
    for (std::int64_t i = 0; i < n; i += kLanes) store_upto<W>(y + i, exp<W>(load_upto<W>(x + i, n - i)), n - i);
  }
};
struct NormalCdf {
  const float* x;
  float* y;
  template <int W> [[gnu::always_inline]] void run(std::int64_t n) const {
    for (std::int64_t i = 0; i < n; i += kLanes) {
      Vec<W> density;
      store_upto<W>(y + i, normal_cdf<W>(load_upto<W>(x + i, n - i), density), n - i);
    }
  }
};
struct SineCosine {
  const float* frequency;
  double position;
  float *s, *c;
  template <int W> [[gnu::always_inline]] void run(std::int64_t n) const {
    for (std::int64_t i = 0; i < n; i += kLanes) {
      Vec<W> sine, cosine;
      sine_cosine<W>(position, load_upto<W>(frequency + i, n - i), sine, cosine);
      store_upto<W>(s + i, sine, n - i);
      store_upto<W>(c + i, cosine, n - i);
    }
  }
};

std::vector<Isa> all_here() {
  std::vector<Isa> list;
  for (Isa i : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512})
    if (i <= cpu_target(1).isa) list.push_back(i);
  return list;
}

template <class Kernel> std::vector<float> apply(const std::vector<float>& x) {
  std::vector<float> first;
  for (Isa isa : all_here()) {
    std::vector<float> y(x.size());
    call(isa, Kernel{x.data(), y.data()}, static_cast<std::int64_t>(x.size()));
    if (first.empty()) first = y;
    EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << name_of(isa);
  }
  return first;
}

std::vector<float> range(double low, double high, int n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(low + (high - low) * i / n);
  return x;
}

TEST(SimdMath, Exp) {
  const std::vector<float> x = range(-87.3, 88.3, 200003), y = apply<Exp>(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(y[i] / std::exp(static_cast<double>(x[i])) - 1.0));
  EXPECT_LT(worst, 2e-7);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> ends = {-kInf, -1e30f, -200.0f, 0.0f, 100.0f, 1e30f, kInf, NAN, -100.0f}, at = apply<Exp>(ends);
  EXPECT_EQ(at[0], 0.0f);
  EXPECT_EQ(at[1], 0.0f);
  EXPECT_EQ(at[2], 0.0f);
  EXPECT_EQ(at[3], 1.0f);
  EXPECT_EQ(at[4], kInf);
  EXPECT_EQ(at[5], kInf);
  EXPECT_EQ(at[6], kInf);
  EXPECT_TRUE(std::isnan(at[7]));
  EXPECT_EQ(at[8], 0.0f);  // below the normal range
}

TEST(SimdMath, NormalCdf) {
  const std::vector<float> x = range(-6.0, 10.0, 100003), y = apply<NormalCdf>(x);
  double worst = 0, worst_middle = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = 0.5 * std::erfc(-static_cast<double>(x[i]) / std::sqrt(2.0)), error = std::abs(y[i] / want - 1.0);
    (x[i] >= -1.0f ? worst_middle : worst) = std::max(x[i] >= -1.0f ? worst_middle : worst, error);
  }
  EXPECT_LT(worst_middle, 4e-7);
  EXPECT_LT(worst, 2e-6);
  EXPECT_TRUE(std::isnan(apply<NormalCdf>({NAN})[0]));
}

TEST(SimdMath, SineAndCosineOfLongPositions) {
  std::vector<float> frequency(67);
  for (std::size_t i = 0; i < frequency.size(); ++i) frequency[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / 67));
  for (double position : {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1000.0, 131071.0, 1e6, 2147483647.0}) {
    for (Isa isa : all_here()) {
      std::vector<float> s(67), c(67);
      call(isa, SineCosine{frequency.data(), position, s.data(), c.data()}, std::int64_t{67});
      for (std::size_t i = 0; i < 67; ++i) {
        const double angle = position * static_cast<double>(frequency[i]);
        ASSERT_NEAR(s[i], std::sin(angle), 3e-7) << position << " " << i;
        ASSERT_NEAR(c[i], std::cos(angle), 3e-7) << position << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace flashgpt::simd
