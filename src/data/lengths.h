// How long documents are: counts by powers of two, for the report of `data prepare`.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "io/json.h"

namespace flashgpt {

struct Lengths {
  struct Row {
    std::int64_t documents = 0, length = 0;  // length: of all of them together
  };
  std::array<Row, 64> rows;  // row i: lengths from 2^i to 2^(i+1) - 1
  std::int64_t documents = 0, total = 0, shortest = 0, longest = 0;

  void add(std::int64_t length);  // at least 1
};

std::string lengths_text(const Lengths& lengths, const std::string& unit);  // a bar chart, a line a row; empty without documents
OrderedJson lengths_json(const Lengths& lengths);

}  // namespace flashgpt
