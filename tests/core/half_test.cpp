#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flashgpt {
namespace {

// Every number of the type comes back, and what lies between two goes to the nearer, halves to the even one.
template <class T> void check_all() {
  for (std::uint32_t b = 0; b < 0x10000u; ++b) {
    const auto x = std::bit_cast<T>(static_cast<std::uint16_t>(b));
    const float f = x;
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(T(f))));
      continue;
    }
    ASSERT_EQ(T(f).bits, b);
    const float next = std::bit_cast<T>(static_cast<std::uint16_t>(b + 1));
    if (!std::isfinite(f) || !std::isfinite(next) || (b & 0x7fffu) == 0x7fffu) continue;
    const float middle = static_cast<float>((static_cast<double>(f) + static_cast<double>(next)) / 2);
    const std::uint32_t even = b % 2 == 0 ? b : b + 1;
    ASSERT_EQ(T(middle).bits, even);
    ASSERT_EQ(T(std::nextafter(middle, f)).bits, b);
    ASSERT_EQ(T(std::nextafter(middle, next)).bits, b + 1);
  }
}

TEST(Half, Bf16RoundsToNearestEven) { check_all<Bf16>(); }
TEST(Half, Fp16RoundsToNearestEven) {
  check_all<Fp16>();
  EXPECT_EQ(static_cast<float>(Fp16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(Fp16(65520.0f))));
  EXPECT_EQ(Fp16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(static_cast<float>(Fp16(1.5f)), 1.5f);
}

}  // namespace
}  // namespace flashgpt
