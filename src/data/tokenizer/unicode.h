// Characters of UTF-8 and their classes, as the regular expressions of tokenizers name them: \p{L}, \p{N}, \p{M}, \s.
#pragma once
#include <cstdint>
#include <string>

namespace flashgpt {

enum class CharClass : std::uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kMark = 3, kSpace = 4 };

inline constexpr std::uint32_t kCodePoints = 0x110000;
inline constexpr std::uint32_t kNoCharacter = kCodePoints;  // a byte that is no part of valid UTF-8; its class is kOther

// Class of every code point and of kNoCharacter: [kCodePoints + 1]. 1.1 MiB, made at the first call.
const CharClass* char_classes();

struct Character {
  std::uint32_t code;   // or kNoCharacter
  std::uint32_t bytes;  // at least 1
};

Character decode_long(const char* at, const char* end);

// The character at `at` < end. Overlong forms, surrogates and what is cut off are bytes without a character.
inline Character decode_utf8(const char* at, const char* end) {
  const auto byte = static_cast<unsigned char>(*at);
  return byte < 0x80 ? Character{byte, 1} : decode_long(at, end);
}

// The last character of [begin, end), which is not empty.
Character decode_last(const char* begin, const char* end);

void append_utf8(std::string& text, std::uint32_t code);

}  // namespace flashgpt
