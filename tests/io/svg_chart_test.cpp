// Charts: ticks, gaps, thinning, and text that must not become markup.
#include "io/svg_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flashgpt {
namespace {

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// The d attribute of the first line.
std::string path_of_line(const std::string& svg) {
  const std::size_t line = svg.find("class=\"line"), begin = svg.find("d=\"", line) + 3;
  return svg.substr(begin, svg.find('"', begin) - begin);
}

TEST(RoundTicks, RoundNumbersInsideTheRange) {
  EXPECT_EQ(round_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  for (const double low : {-7.3, 0.0, 1e-7, 1e6})
    for (const double size : {1e-9, 0.3, 17.0, 4e8}) {
      const std::vector<double> ticks = round_ticks(low, low + size, 5);
      EXPECT_GE(ticks.size(), 2u) << low << " " << size;
      EXPECT_LE(ticks.size(), 12u) << low << " " << size;
      EXPECT_GE(ticks.front(), low - size * 1e-3);
      EXPECT_LE(ticks.back(), low + size * (1 + 1e-3));
    }
  EXPECT_EQ(round_ticks(3, 3, 5).size(), 1u);
}

TEST(SvgChart, ValuesThatAreNotFiniteLeaveAGap) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const Chart c{.series = {{.name = "a", .points = {{1, 1}, {2, 2}, {3, nan}, {4, infinity}, {5, 3}, {6, 1}}}}};
  const std::string svg = svg_of(c);
  EXPECT_EQ(times(path_of_line(svg), "M"), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SvgChart, ALogarithmicAxisLeavesOutWhatIsNotPositive) {
  const std::string svg = svg_of({.series = {{.name = "a", .points = {{1, 1}, {2, 0}, {3, -5}, {4, 1000}}}}, .log_y = true});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(svg.find(">100<"), std::string::npos);
}

TEST(SvgChart, ThinningKeepsTheExtremesOfAMillionPoints) {
  ChartSeries s{.name = "a"};
  for (int i = 0; i < 1000000; ++i) s.points.push_back({static_cast<double>(i), 1.0});
  s.points[700001].y = 9;
  const std::string with = svg_of({.series = {s}});
  EXPECT_LT(with.size(), 100000u);
  // The spike touches the top: 5% of air below the upper margin.
  double highest = 1e9;
  const std::string d = path_of_line(with);
  for (std::size_t at = d.find(' '); at != std::string::npos; at = d.find(' ', at + 1))
    highest = std::min(highest, std::stod(d.substr(at + 1)));
  EXPECT_LT(highest, 40);
}

TEST(SvgChart, OnePointNoPointAndTextOfOthers) {
  EXPECT_NE(svg_of({}).find("no values yet"), std::string::npos);
  EXPECT_EQ(svg_of({.series = {{.name = "a", .points = {{5, 0}}}}}).find("nan"), std::string::npos);
  const std::string svg = svg_of({.title = "<script>\"&", .series = {{.name = "<b>", .points = {{1, 2}, {2, 3}}, .dots = true}}});
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;script&gt;&quot;&amp;"), std::string::npos);
}

}  // namespace
}  // namespace flashgpt
