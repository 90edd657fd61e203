#include "train/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "flashgpt/error.h"
#include "io/file.h"
#include "io/json.h"
#include "io/svg_chart.h"
#include "io/text.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #667; --line: #e3e5ea; --page: #fff; --card: #f7f8fa; --s0: #2a6fb0; --s1: #c2560f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa3ad; --line: #33383f; --page: #16181b; --card: #1e2125; --s0: #6db0ef; --s1: #f0995a; }
}
body { margin: 0 auto; max-width: 1180px; padding: 24px; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 15px; margin: 0 0 6px; } .soft { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 16px; } .tile b { display: block; font-size: 20px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr)); gap: 14px; }
.card { background: var(--card); border-radius: 8px; padding: 12px 14px; min-width: 0; } .wide { grid-column: 1 / -1; }
svg.chart { width: 100%; height: auto; display: block; } .tick, .legend { font-size: 12px; fill: var(--soft); } .legend { fill: var(--ink); }
.grid, .axis { stroke: var(--line); fill: none; } .axis { stroke: var(--soft); } .mark { stroke: var(--soft); stroke-dasharray: 4 4; fill: none; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .faint { opacity: .35; stroke-width: 1; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s0); } .s2 { stroke: var(--s1); } .dot { stroke: none; } .dot.s2 { fill: var(--s1); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } td, th { padding: 2px 18px 2px 0; text-align: right; font-weight: normal; }
th { color: var(--soft); } pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; } details { margin-top: 14px; } summary { cursor: pointer; }
)";

struct Log {
  std::vector<ChartPoint> loss, rate, norm, speed, memory, validation;
  std::vector<Json> validations;
  std::vector<double> resumes;
  Json start = Json::object();  // the newest line of a start or resume
  std::int64_t step = 0, skipped = 0, tokens = 0;
  bool any = false;
};

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}

std::int64_t whole(const Json& line, const char* key) {
  const double v = number(line, key);
  return std::abs(v) < 9e18 ? static_cast<std::int64_t>(v) : 0;  // not a number: 0
}

Log read_log(const fs::path& path) {
  Log log;
  const std::string text = read_file(path);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const Json line = Json::parse(text.substr(at, end - at), nullptr, false);
    at = end + 1;
    if (!line.is_object() || !std::isfinite(number(line, "step"))) continue;
    const double step = number(line, "step");
    const std::string event = line.contains("event") && line["event"].is_string() ? line["event"].get<std::string>() : "";
    if (event == "start" || event == "resume") {
      if (event == "resume") log.resumes.push_back(step);
      log.start = line;
    } else if (event == "validation") {
      log.validation.push_back({step, number(line, "loss")});
      log.validations.push_back(line);
    } else if (event.empty()) {
      log.any = true;
      log.step = whole(line, "step");
      log.skipped = whole(line, "skipped");
      log.tokens = whole(line, "tokens");
      log.loss.push_back({step, number(line, "loss")});
      log.rate.push_back({step, number(line, "learning_rate")});
      log.norm.push_back({step, number(line, "grad_norm")});
      log.speed.push_back({step, number(line, "tokens_per_second")});
      if (line.contains("resident_bytes")) log.memory.push_back({step, number(line, "resident_bytes") / (1 << 20)});
    }
  }
  require(log.any, path.string(), ": holds no step yet");
  return log;
}

// An exponential mean over about a fiftieth of the points, started without bias; a gap does not enter it.
std::vector<ChartPoint> smooth(const std::vector<ChartPoint>& points) {
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(points.size()) / 50);
  std::vector<ChartPoint> out;
  double sum = 0, weight = 0;
  for (const ChartPoint& p : points) {
    if (std::isfinite(p.y)) {
      sum = keep * sum + (1 - keep) * p.y;
      weight = keep * weight + (1 - keep);
    }
    out.push_back({p.x, std::isfinite(p.y) && weight > 0 ? sum / weight : std::nan("")});
  }
  return out;
}

double median(const std::vector<ChartPoint>& points) {
  std::vector<double> v;
  for (const ChartPoint& p : points)
    if (std::isfinite(p.y)) v.push_back(p.y);
  if (v.empty()) return std::nan("");
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

std::string tile(const std::string& value, const std::string& name) {
  return cat("<div class=\"tile\"><b>", escape_html(value), "</b><span class=\"soft\">", escape_html(name), "</span></div>\n");
}

std::string card(const std::string& title, Chart chart, bool wide = false) {
  chart.title = title;
  chart.x_name = "step";
  if (wide) chart.width = 1120, chart.height = 340;
  return cat("<div class=\"card", wide ? " wide" : "", "\"><h2>", escape_html(title), "</h2>\n", svg_of(chart), "</div>\n");
}

std::string tiles(const Log& log) {
  auto fixed = [](double v, int digits) { return std::isfinite(v) ? fixed_text(v, digits) : std::string("not available"); };
  std::string out = "<div class=\"tiles\">\n";
  const double steps = number(log.start, "steps");
  out += tile(std::isfinite(steps) ? cat(log.step, " of ", static_cast<std::int64_t>(steps)) : cat(log.step), "steps");
  out += tile(fixed(smooth(log.loss).back().y, 4), "loss, smoothed");
  if (!log.validations.empty()) {
    const Json& v = log.validations.back();
    out += tile(fixed(number(v, "loss"), 4), "held-out loss");
    out += tile(fixed(number(v, "perplexity"), 2), "perplexity");
    out += tile(fixed(number(v, "bits_per_byte"), 4), "bits per byte");
  }
  out += tile(count_text(static_cast<double>(log.tokens)), "tokens trained on");
  if (const double speed = median(log.speed); std::isfinite(speed)) out += tile(count_text(speed), "tokens/s, median");
  if (const double n = number(log.start, "parameters"); std::isfinite(n)) out += tile(count_text(n), "parameters");
  if (const std::int64_t bytes = whole(log.start, "memory_bytes"); bytes > 0)
    out += tile(bytes_text(static_cast<std::uint64_t>(bytes)), "memory planned");
  if (log.skipped > 0) out += tile(cat(log.skipped), "steps skipped");
  return out + "</div>\n";
}

std::string charts(const Log& log) {
  std::string out = "<div class=\"charts\">\n";
  auto one = [&](const char* name, const std::vector<ChartPoint>& points) {
    return Chart{.series = {{.name = name, .points = points}}, .marks = log.resumes};
  };
  Chart loss{
      .series = {{.name = "training, each step", .points = log.loss, .faint = true}, {.name = "smoothed", .points = smooth(log.loss)}},
      .marks = log.resumes};
  if (!log.validation.empty()) loss.series.push_back({.name = "held out", .points = log.validation, .dots = true});
  out += card("Loss", loss, true);
  out += card("Learning rate", one("learning rate", log.rate));
  Chart norm = one("norm of the gradient", log.norm);
  norm.log_y = true;
  out += card("Norm of the gradient, before clipping", norm);
  Chart speed = one("tokens/s", log.speed);
  speed.from_zero = true;
  speed.unit = " tokens/s";
  out += card("Tokens per second", speed);
  if (!log.memory.empty()) {
    Chart memory = one("resident", log.memory);
    memory.from_zero = true;
    memory.unit = " MiB";
    out += card("Memory of the process, MiB", memory);
  }
  return out + "</div>\n";
}

std::string validation_table(const Log& log) {
  if (log.validations.empty()) return "";
  std::string out =
      "<details><summary>Validations</summary><table><tr><th>step</th><th>loss</th><th>perplexity</th><th>bits per byte</th><th>targets</th></tr>\n";
  for (const Json& v : log.validations)
    out += cat("<tr><td>", whole(v, "step"), "</td><td>", fixed_text(number(v, "loss"), 4), "</td><td>",
               fixed_text(number(v, "perplexity"), 3), "</td><td>",
               std::isfinite(number(v, "bits_per_byte")) ? fixed_text(number(v, "bits_per_byte"), 4) : "not available", "</td><td>",
               whole(v, "targets"), "</td></tr>\n");
  return out + "</table></details>\n";
}

}  // namespace

std::string html_report(const fs::path& run, const std::vector<ReportSample>& samples) {
  const fs::path path = run / "train.jsonl";
  require(exists(path), run.string(), ": holds no train.jsonl, expected the folder of a run (flashgpt train --out)");
  const Log log = read_log(path);
  const std::string name = escape_html(fs::absolute(run).lexically_normal().filename().string());
  std::string out = cat(
      "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>",
      name, "</title>\n<style>", kStyle, "</style></head>\n<body>\n<h1>", name, "</h1>\n<div class=\"soft\">");
  if (log.start.contains("blas"))
    out += cat("rows of ", whole(log.start, "context_len"), " tokens, ", whole(log.start, "batch_size"), " a step; ",
               escape_html(log.start["blas"].is_string() ? log.start["blas"].get<std::string>() : "?"), ", ", whole(log.start, "threads"),
               " threads");
  if (!log.resumes.empty()) out += cat("; resumed ", log.resumes.size(), log.resumes.size() == 1 ? " time" : " times", " (dashed)");
  out += "</div>\n" + tiles(log) + charts(log);
  if (!samples.empty()) out += "<h2 style=\"margin-top:22px\">Samples</h2>\n";
  for (const ReportSample& s : samples)
    out += cat("<div class=\"card\" style=\"margin-bottom:10px\"><pre><b>", escape_html(s.prompt), "</b>", escape_html(s.text),
               "</pre></div>\n");
  out += validation_table(log);
  if (exists(run / "config.yaml"))
    out += cat("<details><summary>Configuration</summary><pre>", escape_html(read_file(run / "config.yaml")), "</pre></details>\n");
  return out + "</body>\n</html>\n";
}

}  // namespace flashgpt
