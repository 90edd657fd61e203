// Line charts as inline SVG: no script, no style but classes, so that the page decides on colours (and may have a dark mode).
//   svg.chart   text.tick   path.grid   path.axis   path.line.s0 .s1 ...   circle.dot.s0 ...   path.mark   text.legend
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace flashgpt {

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartSeries {
  std::string name;                // in the legend and in the tooltip
  std::vector<ChartPoint> points;  // x ascending; a y that is not finite leaves a gap
  bool faint = false;              // class "faint": what a smoothed line is drawn over
  bool dots = false;               // each point marked too: few of them
};

struct Chart {
  std::string title;   // for screen readers; the page shows its own heading
  std::string x_name;  // "step"
  std::string unit;    // behind the y values of tooltips: " tokens/s"
  std::vector<ChartSeries> series;
  std::vector<double> marks;  // dashed vertical lines at these x
  bool log_y = false;         // values that are not positive are left out
  bool from_zero = false;     // y starts at 0
  int width = 720, height = 280;
};

// The <svg> element; a chart without a point says so. Lines of many points are thinned to the lowest and highest of each column of pixels.
std::string svg_of(const Chart& chart);

std::string escape_html(std::string_view text);
// Round numbers from low to high, about `count` of them: 0, 0.5, 1, ...
std::vector<double> round_ticks(double low, double high, int count);

}  // namespace flashgpt
