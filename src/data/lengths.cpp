#include "data/lengths.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "flashgpt/error.h"
#include "io/text.h"

namespace flashgpt {

namespace {

constexpr std::size_t kBar = 32;  // characters of the longest

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

template <class F> void each_row(const Lengths& lengths, F&& f) {
  for (std::size_t i = 0; i + 1 < lengths.rows.size(); ++i)
    if (lengths.rows[i].documents > 0) f(std::int64_t{1} << i, lengths.rows[i]);
}

}  // namespace

void Lengths::add(std::int64_t length) {
  if (length < 1) return;
  Row& row = rows[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)) - 1)];
  ++row.documents;
  row.length += length;
  shortest = documents == 0 ? length : std::min(shortest, length);
  longest = std::max(longest, length);
  ++documents;
  total += length;
}

std::string lengths_text(const Lengths& lengths, const std::string& unit) {
  if (lengths.documents == 0) return {};
  std::string text = cat("lengths     from ", lengths.shortest, " to ", lengths.longest, " ", unit, ", ", lengths.total / lengths.documents,
                         " on average; bars show the part of all ", unit, "\n");
  each_row(lengths, [&](std::int64_t from, const Lengths::Row& row) {
    const double part = static_cast<double>(row.length) / static_cast<double>(lengths.total);
    text += cat(padded(count_text(static_cast<double>(from)), 10), " ", padded(std::to_string(row.documents), 9),
                row.documents == 1 ? " document  " : " documents ", " ", padded(fixed_text(100 * part, 1), 5), "% ",
                std::string(static_cast<std::size_t>(part * kBar + 0.5), '#'), "\n");
  });
  return text;
}

OrderedJson lengths_json(const Lengths& lengths) {
  OrderedJson rows = OrderedJson::array();
  each_row(lengths, [&](std::int64_t from, const Lengths::Row& row) {
    rows.push_back({{"from", from}, {"to", 2 * from - 1}, {"documents", row.documents}, {"tokens", row.length}});
  });
  return {{"shortest", lengths.shortest}, {"longest", lengths.longest}, {"histogram", rows}};
}

}  // namespace flashgpt
