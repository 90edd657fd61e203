#include "data/tokenizer/unicode.h"

#include <algorithm>
#include <vector>

#include "data/tokenizer/unicode_tables.h"

namespace flashgpt {

const CharClass* char_classes() {
  static const std::vector<CharClass> classes = [] {
    std::vector<CharClass> all(kCodePoints + 1, CharClass::kOther);
    for (std::size_t i = 0; i < kClassRangesCount; ++i) {
      const ClassRange& r = kClassRanges[i];
      std::fill(all.begin() + r.first, all.begin() + r.last + 1, static_cast<CharClass>(r.value));
    }
    return all;
  }();
  return classes.data();
}

Character decode_long(const char* at, const char* end) {
  const auto byte = [&](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(at[i])); };
  const auto follows = [&](int i) { return (byte(i) & 0xC0) == 0x80; };
  const std::uint32_t lead = byte(0);
  const auto room = end - at;
  if (lead >= 0xC2 && lead < 0xE0 && room >= 2 && follows(1)) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead >= 0xE0 && lead < 0xF0 && room >= 3 && follows(1) && follows(2)) {
    const std::uint32_t code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    if (code >= 0x800 && (code < 0xD800 || code >= 0xE000)) return {code, 3};
  }
  if (lead >= 0xF0 && lead < 0xF5 && room >= 4 && follows(1) && follows(2) && follows(3)) {
    const std::uint32_t code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    if (code >= 0x10000 && code < kCodePoints) return {code, 4};
  }
  return {kNoCharacter, 1};
}

Character decode_last(const char* begin, const char* end) {
  for (std::ptrdiff_t n = 2; n <= 4 && n <= end - begin; ++n) {
    const Character c = decode_utf8(end - n, end);
    if (c.code != kNoCharacter && c.bytes == n) return c;
  }
  return decode_utf8(end - 1, end);
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

}  // namespace flashgpt
