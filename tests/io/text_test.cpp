#include "io/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flashgpt {
namespace {

TEST(Text, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(bytes_text(std::uint64_t{612} << 30), "612 GiB");
  EXPECT_EQ(bytes_text(65712999629), "61.2 GiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<std::uint64_t>::max()), "16.0 EiB");
}

TEST(Text, Counts) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(950), "950");
  EXPECT_EQ(count_text(999.6), "1.00K");
  EXPECT_EQ(count_text(1839999), "1.84M");
  EXPECT_EQ(count_text(123.7e6), "124M");
  EXPECT_EQ(count_text(999700), "1.00M");
  EXPECT_EQ(count_text(6.7e9), "6.70B");
  EXPECT_EQ(count_text(-1500), "-1.50K");
  EXPECT_EQ(count_text(1e18), "1000000T");
  EXPECT_EQ(count_text(std::nan("")), "?");
  EXPECT_EQ(rate_text(20480), "20.5K/s");
  EXPECT_EQ(count_text(1e300).size(), 290u);
}

TEST(Text, Durations) {
  EXPECT_EQ(duration_text(0), "0 ms");
  EXPECT_EQ(duration_text(0.285), "285 ms");
  EXPECT_EQ(duration_text(0.9996), "1.00 s");
  EXPECT_EQ(duration_text(3.2), "3.20 s");
  EXPECT_EQ(duration_text(59.94), "59.9 s");
  EXPECT_EQ(duration_text(59.96), "1m 00s");
  EXPECT_EQ(duration_text(725), "12m 05s");
  EXPECT_EQ(duration_text(3599.6), "1h 00m");
  EXPECT_EQ(duration_text(5340), "1h 29m");
  EXPECT_EQ(duration_text(86399), "1d 00h");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600), "3d 04h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::nan("")), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(duration_text(1e300), "?");
}

TEST(Text, Numbers) {
  EXPECT_EQ(fixed_text(4.82134, 4), "4.8213");
  EXPECT_EQ(fixed_text(std::nan(""), 4), "nan");
  EXPECT_EQ(fixed_text(1e308, 2).size(), 312u);
  EXPECT_EQ(short_text(6e-5), "6e-05");
}

}  // namespace
}  // namespace flashgpt
