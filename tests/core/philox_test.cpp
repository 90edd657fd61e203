#include "core/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

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

// The layout is a promise to every backend: a change of these numbers is a change of what a seed means.
TEST(Dropout, KnownAnswers) {
  const Dropout d{1234, 5, 77};
  EXPECT_EQ(dropout_block(d, 3, 2, 9), (PhiloxBlock{0x86383fd4, 0xbf176214, 0x1b3a3791, 0xd352b0de}));
  EXPECT_EQ(dropout_group(0), 0u);
  EXPECT_EQ(dropout_group(31), 7u);
  EXPECT_EQ(dropout_group(40), 8u);
  EXPECT_EQ(dropout_place(9), 3);
  EXPECT_EQ(dropout_place(6), 0);
}

TEST(Dropout, EveryPairHasAByteOfItsOwn) {
  std::set<std::tuple<unsigned, unsigned, int, int>> bytes;
  for (Int64 i = 0; i < 48; ++i)
    for (Int64 j = 0; j < 48; ++j) bytes.insert({dropout_group(i), dropout_group(j), dropout_place(i), dropout_place(j)});
  EXPECT_EQ(bytes.size(), 48u * 48u);
  EXPECT_EQ(dropout_group(47), 11u);  // no gaps between the groups
}

TEST(Dropout, ThresholdAndScale) {
  EXPECT_EQ(dropout_threshold(0.1f), 26u);
  EXPECT_EQ(dropout_threshold(0.5f), 128u);
  EXPECT_EQ(dropout_threshold(1.0f / 512), 1u);
  EXPECT_EQ(dropout_threshold(0.99f), 253u);
  EXPECT_FLOAT_EQ(dropout_scale(64), 4.0f / 3);
}

// A weight's expectation is its value: kept with the rate that the scale inverts, at every place of a group, in every row and column; and
// neighbours know nothing of each other.
TEST(Dropout, ExpectationAndIndependence) {
  constexpr int kN = 512;
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const Dropout d{99, 1, dropout_threshold(p)};
    const double rate = 1.0 / static_cast<double>(dropout_scale(d.threshold));
    EXPECT_NEAR(rate, 1 - static_cast<double>(p), 1.0 / 512 + 1e-6);
    std::vector<char> kept(kN * kN);
    for (int i = 0; i < kN; ++i)
      for (int j = 0; j < kN; ++j) kept[static_cast<std::size_t>(i * kN + j)] = dropout_keeps(d, 7, i, j);
    auto at = [&](int i, int j) { return static_cast<double>(kept[static_cast<std::size_t>(i * kN + j)]); };
    const double variance = rate * (1 - rate);
    auto expect_mean = [&](double sum, double n, const char* what, double sigmas) {
      EXPECT_NEAR(sum / n, rate, sigmas * std::sqrt(variance / n)) << what << ", p = " << p;
    };
    double all = 0, place[16][16] = {};
    for (int i = 0; i < kN; ++i) {
      double row = 0, column = 0;
      for (int j = 0; j < kN; ++j) row += at(i, j), column += at(j, i), place[i % 16][j % 16] += at(i, j);
      expect_mean(row, kN, "row", 4.5);
      expect_mean(column, kN, "column", 4.5);
      all += row;
    }
    expect_mean(all, kN * kN, "all", 4);
    for (const auto& line : place)
      for (const double sum : line) expect_mean(sum, kN * kN / 256, "place", 4.5);
    for (const auto& [di, dj] : {std::pair{0, 1}, {1, 0}, {1, 1}, {0, 8}, {8, 0}, {8, 8}, {0, 16}, {16, 0}, {2, 2}}) {
      double both = 0, n = 0;
      for (int i = 0; i + di < kN; ++i)
        for (int j = 0; j + dj < kN; ++j) both += (at(i, j) - rate) * (at(i + di, j + dj) - rate), n += 1;
      EXPECT_NEAR(both / n / variance, 0, 4.5 / std::sqrt(n)) << "neighbours " << di << ", " << dj;
    }
  }
}

TEST(Dropout, SeedOffsetAndHeadGiveOtherMasks) {
  const Dropout d{99, 1, 128};
  auto differing = [&](const Dropout& other, unsigned head) {
    int n = 0;
    for (Int64 i = 0; i < 64; ++i)
      for (Int64 j = 0; j < 64; ++j) n += dropout_keeps(d, 7, i, j) != dropout_keeps(other, head, i, j);
    return n / 4096.0;
  };
  EXPECT_EQ(differing(d, 7), 0);
  EXPECT_NEAR(differing({98, 1, 128}, 7), 0.5, 0.04);
  EXPECT_NEAR(differing({99 + (1ull << 32), 1, 128}, 7), 0.5, 0.04);
  EXPECT_NEAR(differing({99, 2, 128}, 7), 0.5, 0.04);
  EXPECT_NEAR(differing(d, 8), 0.5, 0.04);
}

}  // namespace
}  // namespace flashgpt
