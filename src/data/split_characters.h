// Places between two characters as people see them: not inside the bytes of one, not between CR and LF, not before a combining mark, a
// variation selector or a skin tone, not around a zero-width joiner, not inside a flag (two regional indicators) or a Hangul syllable of
// jamo. That is Unicode's extended grapheme cluster (UAX 29) less its rules for prepended and Indic conjuncts.
#pragma once
#include <cstddef>
#include <string_view>

namespace flashgpt {

// Whether text may be cut at `at`; at 0 and at its end always. Bytes that are no UTF-8 may be cut from their neighbours.
bool between_characters(std::string_view text, std::size_t at);

// The last such place in (0, at], at <= text.size(). Nothing that people write is longer than 256 bytes: where there is no place so far
// back, one between two code points is taken, and at least `at` itself when nothing else makes it more than 0.
std::size_t character_cut(std::string_view text, std::size_t at);

}  // namespace flashgpt
