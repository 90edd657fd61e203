#include "data/split_characters.h"

#include <algorithm>
#include <cstdint>

#include "data/tokenizer/unicode.h"

namespace flashgpt {

namespace {

constexpr std::size_t kSearch = 256;
constexpr std::uint32_t kJoiner = 0x200D;

bool in(std::uint32_t c, std::uint32_t first, std::uint32_t last) { return c >= first && c <= last; }

bool extends(std::uint32_t c) {
  return c == kJoiner || c == 0x200C || in(c, 0x1F3FB, 0x1F3FF) || in(c, 0xFE00, 0xFE0F) || in(c, 0xE0020, 0xE007F) ||
         (c > 0x2FF && char_classes()[c] == CharClass::kMark);
}
bool regional(std::uint32_t c) { return in(c, 0x1F1E6, 0x1F1FF); }
bool lead_jamo(std::uint32_t c) { return in(c, 0x1100, 0x115F) || in(c, 0xA960, 0xA97C); }
bool vowel_jamo(std::uint32_t c) { return in(c, 0x1160, 0x11A7) || in(c, 0xD7B0, 0xD7C6); }
bool tail_jamo(std::uint32_t c) { return in(c, 0x11A8, 0x11FF) || in(c, 0xD7CB, 0xD7FB); }
bool syllable(std::uint32_t c) { return in(c, 0xAC00, 0xD7A3); }

bool hangul(std::uint32_t a, std::uint32_t b) {
  if (lead_jamo(a)) return lead_jamo(b) || vowel_jamo(b) || syllable(b);
  if (vowel_jamo(a) || (syllable(a) && (a - 0xAC00) % 28 == 0)) return vowel_jamo(b) || tail_jamo(b);
  return (syllable(a) || tail_jamo(a)) && tail_jamo(b);
}

// Whether `at` lies inside the bytes of a character.
bool inside(std::string_view text, std::size_t at) {
  for (std::size_t back = 1; back <= 3 && back <= at; ++back) {
    const char* p = text.data() + at - back;
    if ((static_cast<unsigned char>(*p) & 0xC0) == 0x80) continue;
    const Character c = decode_utf8(p, text.data() + text.size());
    if (c.code != kNoCharacter) return c.bytes > back;
    // What the end of the text cuts off may still become a character.
    const auto lead = static_cast<unsigned char>(*p);
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
    return length > back && at - back + length > text.size();
  }
  return false;
}

}  // namespace

bool between_characters(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size()) return true;
  if (text[at - 1] == '\r' && text[at] == '\n') return false;
  if ((text[at] & 0x80) == 0) return true;  // ASCII extends nothing
  if (inside(text, at)) return false;
  const char* end = text.data() + text.size();
  const std::uint32_t after = decode_utf8(text.data() + at, end).code;
  if (after == kNoCharacter) return true;
  const std::size_t from = at > kSearch ? at - kSearch : 0;
  const char* begin = text.data() + from;
  const std::uint32_t before = decode_last(begin, text.data() + at).code;
  if (before == kNoCharacter || before < 0x20) return true;
  if (extends(after) || before == kJoiner || hangul(before, after)) return false;
  if (!regional(before) || !regional(after)) return true;
  std::size_t flags = 0;  // halves in a row that end here; whole flags end at an even number
  for (std::size_t p = at; p >= from + 4 && regional(decode_last(begin, text.data() + p).code); p -= 4) ++flags;
  return flags % 2 == 0;
}

std::size_t character_cut(std::string_view text, std::size_t at) {
  const std::size_t least = at > kSearch ? at - kSearch : 0;
  for (std::size_t p = at; p > least; --p)
    if (between_characters(text, p)) return p;
  for (std::size_t p = at; p > 0 && at - p < 4; --p)
    if (!inside(text, p)) return p;
  return at;
}

}  // namespace flashgpt
