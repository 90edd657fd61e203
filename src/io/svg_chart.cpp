#include "io/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "flashgpt/error.h"
#include "io/text.h"

namespace flashgpt {
namespace {

constexpr double kLeft = 62, kRight = 14, kTop = 26, kBottom = 36;  // margins in pixels: labels, the legend above

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void include(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
};

// Chart coordinates to pixels; y may be logarithmic.
struct Frame {
  Range x, y;
  bool log_y = false;
  double width = 0, height = 0;
  double scale(double v) const { return log_y ? std::log10(v) : v; }
  double px(double v) const { return kLeft + (v - x.low) / (x.high - x.low) * (width - kLeft - kRight); }
  double py(double v) const {
    return height - kBottom - (scale(v) - scale(y.low)) / (scale(y.high) - scale(y.low)) * (height - kTop - kBottom);
  }
};

bool drawn(const Chart& c, double y) { return std::isfinite(y) && (!c.log_y || y > 0); }

std::string pixel(double v) { return fixed_text(v, 1); }

// 12000 -> "12k": what fits beside an axis.
std::string tick_text(double v) {
  const double size = std::abs(v);
  if (size >= 1e9) return short_text(v / 1e9, 4) + "G";
  if (size >= 1e6) return short_text(v / 1e6, 4) + "M";
  if (size >= 1e4) return short_text(v / 1e3, 4) + "k";
  return short_text(v, 4);
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const bool fine = high / low < 100;
  for (int e = static_cast<int>(std::floor(std::log10(low))); e <= static_cast<int>(std::ceil(std::log10(high))); ++e)
    for (const double m : {1.0, 2.0, 5.0}) {
      const double t = m * std::pow(10.0, e);
      if ((fine || m == 1.0) && t >= low * (1 - 1e-9) && t <= high * (1 + 1e-9)) ticks.push_back(t);
    }
  return ticks.size() >= 2 ? ticks : round_ticks(low, high, 4);
}

// The points of a run without gaps, thinned: of each column of pixels the lowest and the highest, in their order.
std::string path_of(const std::vector<ChartPoint>& run, const Frame& f) {
  std::string d;
  auto add = [&](const ChartPoint& p) { d += (d.empty() ? "M" : "L") + pixel(f.px(p.x)) + " " + pixel(f.py(p.y)); };
  for (std::size_t i = 0; i < run.size();) {
    const double column = std::floor(f.px(run[i].x));
    std::size_t low = i, high = i, end = i;
    for (; end < run.size() && std::floor(f.px(run[end].x)) == column; ++end) {
      if (run[end].y < run[low].y) low = end;
      if (run[end].y > run[high].y) high = end;
    }
    add(run[std::min(low, high)]);
    if (low != high) add(run[std::max(low, high)]);
    i = end;
  }
  return d;
}

std::string draw_series(const Chart& c, const ChartSeries& s, std::size_t number, const Frame& f) {
  const std::string classes = cat(" s", number, s.faint ? " faint" : "");
  std::string d;
  std::vector<ChartPoint> run;
  auto end_run = [&] {
    d += path_of(run, f);
    run.clear();
  };
  const ChartPoint* last = nullptr;
  for (const ChartPoint& p : s.points) {
    if (!drawn(c, p.y)) {
      end_run();
      continue;
    }
    run.push_back(p);
    last = &p;
  }
  end_run();
  if (!last) return "";
  std::string out = cat("<path class=\"line", classes, "\" d=\"", d, "\"><title>", escape_html(s.name), ": ", tick_text(last->y),
                        escape_html(c.unit), " at ", escape_html(c.x_name), " ", tick_text(last->x), "</title></path>\n");
  if (!s.dots) return out;
  for (const ChartPoint& p : s.points)
    if (drawn(c, p.y))
      out += cat("<circle class=\"dot", classes, "\" cx=\"", pixel(f.px(p.x)), "\" cy=\"", pixel(f.py(p.y)), "\" r=\"3\"><title>",
                 escape_html(s.name), ": ", short_text(p.y, 5), escape_html(c.unit), " at ", escape_html(c.x_name), " ", short_text(p.x, 9),
                 "</title></circle>\n");
  return out;
}

Frame frame_of(const Chart& c) {
  Frame f{.log_y = c.log_y, .width = static_cast<double>(c.width), .height = static_cast<double>(c.height)};
  for (const ChartSeries& s : c.series)
    for (const ChartPoint& p : s.points)
      if (drawn(c, p.y)) f.x.include(p.x), f.y.include(p.y);
  if (f.x.empty()) return f;
  if (c.from_zero) f.y.include(0);
  if (f.x.low == f.x.high) f.x.low -= 0.5, f.x.high += 0.5;
  if (f.y.low == f.y.high) {
    const double half = f.y.low == 0 ? 1 : std::abs(f.y.low) * 0.1;
    if (!c.from_zero) f.y.low -= half;
    f.y.high += half;
  }
  if (c.log_y) return f;
  // Air above, and below unless it is the zero line.
  const double air = (f.y.high - f.y.low) * 0.05;
  f.y.high += air;
  if (!c.from_zero) f.y.low -= air;
  return f;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(high > low) || count < 1) return {low};
  const double rough = (high - low) / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double m : {5.0, 2.0, 1.0})
    if (m * power >= rough * 0.7) step = m * power;
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double k = first; k <= last && ticks.size() < 100; ++k) ticks.push_back(k == 0 ? 0 : k * step);
  return ticks;
}

std::string svg_of(const Chart& c) {
  const Frame f = frame_of(c);
  std::string out =
      cat("<svg class=\"chart\" role=\"img\" viewBox=\"0 0 ", c.width, " ", c.height, "\" aria-label=\"", escape_html(c.title), "\">\n");
  if (f.x.empty())
    return out + cat("<text class=\"tick\" x=\"", c.width / 2, "\" y=\"", c.height / 2,
                     "\" text-anchor=\"middle\">no values yet</text>\n</svg>\n");
  const std::string left = pixel(kLeft), right = pixel(f.width - kRight), bottom = pixel(f.height - kBottom);
  for (const double t : c.log_y ? log_ticks(f.y.low, f.y.high) : round_ticks(f.y.low, f.y.high, 5)) {
    const std::string y = pixel(f.py(t));
    out += cat("<path class=\"grid\" d=\"M", left, " ", y, "H", right, "\"/><text class=\"tick\" text-anchor=\"end\" x=\"",
               pixel(kLeft - 8), "\" y=\"", pixel(f.py(t) + 4), "\">", tick_text(t), "</text>\n");
  }
  for (const double t : round_ticks(f.x.low, f.x.high, 7))
    out += cat("<text class=\"tick\" text-anchor=\"middle\" x=\"", pixel(f.px(t)), "\" y=\"", pixel(f.height - kBottom + 17), "\">",
               tick_text(t), "</text>\n");
  out += cat("<path class=\"axis\" d=\"M", left, " ", bottom, "H", right, "\"/>\n<text class=\"tick\" text-anchor=\"end\" x=\"", right,
             "\" y=\"", pixel(f.height - 4), "\">", escape_html(c.x_name), "</text>\n");
  for (const double m : c.marks)
    if (m >= f.x.low && m <= f.x.high) out += cat("<path class=\"mark\" d=\"M", pixel(f.px(m)), " ", pixel(kTop), "V", bottom, "\"/>\n");
  for (std::size_t i = 0; i < c.series.size(); ++i) out += draw_series(c, c.series[i], i, f);
  if (c.series.size() > 1) {
    double x = kLeft;
    for (std::size_t i = 0; i < c.series.size(); ++i) {
      const ChartSeries& s = c.series[i];
      out += cat("<path class=\"line s", i, s.faint ? " faint" : "", "\" d=\"M", pixel(x), " 12h18\"/><text class=\"legend\" x=\"",
                 pixel(x + 24), "\" y=\"16\">", escape_html(s.name), "</text>\n");
      x += 24 + 7.2 * static_cast<double>(s.name.size()) + 22;
    }
  }
  return out + "</svg>\n";
}

}  // namespace flashgpt
