#include "core/philox.h"

#include <gtest/gtest.h>

namespace flashgpt {
namespace {

// Known answers published with the Random123 library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, ~0ull), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822ull),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalHasMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const PhiloxBlock r = philox(7, RandomStream::kInit, 0, static_cast<std::uint64_t>(i));
    for (float x : normal(r[0], r[1])) {
      sum += x;
      squares += x * x;
    }
  }
  EXPECT_NEAR(sum / (2 * n), 0.0, 0.02);
  EXPECT_NEAR(squares / (2 * n), 1.0, 0.03);
}

}  // namespace
}  // namespace flashgpt
