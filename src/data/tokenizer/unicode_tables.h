// The tables that tools/unicode_tables.py writes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace flashgpt {

struct ClassRange {  // code points first .. last, both in it
  std::uint32_t first, last;
  std::uint8_t value;
};
struct Decomposition {  // canonical; second is 0 where one character stands for one other
  std::uint32_t code, first, second;
  bool composes;  // NFC makes `code` of the two again
};

extern const ClassRange kClassRanges[];  // values of CharClass
extern const std::size_t kClassRangesCount;
extern const ClassRange kCombiningClasses[];  // canonical combining classes other than 0
extern const std::size_t kCombiningClassesCount;
extern const Decomposition kDecompositions[];  // by code; Hangul syllables are computed
extern const std::size_t kDecompositionsCount;

}  // namespace flashgpt
