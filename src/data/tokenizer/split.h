// Text to words, as the regular expressions of well-known tokenizers cut it; merges never cross a word. The expressions are written out as
// scanners here: a general engine would be most of the time of encoding.
#pragma once
#include <cstdint>
#include <string_view>

namespace flashgpt {

enum class SplitRule : std::uint8_t {
  kNone,    // the text is one word
  kGpt2,    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kLlama3,  // (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kQwen2,   // the same with \p{N}
  kQwen35,  // the same with [\p{L}\p{M}]+ for letters
};
inline constexpr SplitRule kRegexRules[] = {SplitRule::kGpt2, SplitRule::kLlama3, SplitRule::kQwen2, SplitRule::kQwen35};

std::string_view name_of(SplitRule rule);   // "gpt2"
std::string_view regex_of(SplitRule rule);  // as tokenizer.json has it; empty for kNone

// Where the word that begins at `at` < end ends.
using WordEnd = const char* (*)(const char* at, const char* end);
WordEnd word_end(SplitRule rule);

// Whether the words of text[0, at) and of text[at, size) are those of the whole text, whatever stands around the characters before and
// after `at`: a word of every rule ends with a letter or number that something else, and no mark, follows. 0 < at < size.
bool safe_cut(std::string_view text, std::size_t at);

}  // namespace flashgpt
