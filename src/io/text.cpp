#include "io/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace flashgpt {
namespace {

template <class... Args> std::string print(const char* format, Args... args) {
  char buffer[400];  // the longest double in fixed notation has 309 digits before the point
  const int n = std::snprintf(buffer, sizeof buffer, format, args...);
  return {buffer, n < 0 ? 0 : std::min(static_cast<std::size_t>(n), sizeof buffer - 1)};
}

// Three digits of value / base^unit with the largest unit that leaves at least 1, also after rounding (999.7 becomes 1.00 of the next).
std::string scaled(double value, double base, const char* const* units, int last_unit) {
  int unit = 0;
  while (unit < last_unit && std::abs(value) >= base - (unit == 0 ? 0 : 0.5)) {
    value /= base;
    ++unit;
  }
  const double size = std::abs(value);
  const int decimals = unit == 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return print("%.*f%s", decimals, value, units[unit]);
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  return scaled(static_cast<double>(bytes), 1024, kUnits, 6);
}

std::string count_text(double count) {
  static constexpr const char* kUnits[] = {"", "K", "M", "B", "T"};
  if (!std::isfinite(count)) return "?";
  return scaled(std::abs(count) < 1000 ? std::round(count) : count, 1000, kUnits, 4);
}

std::string rate_text(double per_second) { return count_text(per_second) + "/s"; }

std::string duration_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400, kLongest = 1e9 * kDay;
  if (!(seconds >= 0) || seconds > kLongest) return "?";
  if (seconds < 0.9995) return print("%.0f ms", seconds * 1000);
  if (seconds < 59.95) return print(seconds < 9.995 ? "%.2f s" : "%.1f s", seconds);
  auto pair = [&](const char* format, double large, double small) {
    const auto units = static_cast<long long>(std::llround(seconds / small)), per = static_cast<long long>(large / small);
    return print(format, units / per, units % per);
  };
  if (seconds < kHour - 0.5) return pair("%lldm %02llds", kMinute, 1);
  if (seconds < kDay - kMinute / 2) return pair("%lldh %02lldm", kHour, kMinute);
  return pair("%lldd %02lldh", kDay, kHour);
}

std::string fixed_text(double value, int decimals) { return print("%.*f", decimals, value); }

std::string hex_text(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string short_text(double value, int digits) { return print("%.*g", digits, value); }

}  // namespace flashgpt
