#include "data/tokenizer/split.h"

#include "data/tokenizer/unicode.h"

namespace flashgpt {
namespace {

struct Traits {
  bool any_case;       // of contractions
  bool letter_prefix;  // a word takes any one character that is no letter, number, CR or LF before it; else a space only
  bool newlines;       // symbols take the newlines after them, and white space ends with its last newline
  int digits;          // of a number; 0: any
  bool marks;          // are letters
};

constexpr Traits kTraits[] = {
    {}, {false, false, false, 0, false}, {true, true, true, 3, false}, {true, true, true, 1, false}, {true, true, true, 1, true},
};

constexpr std::string_view kNames[] = {"none", "gpt2", "llama3", "qwen2", "qwen3.5"};

constexpr std::string_view kRegexes[] = {
    "",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

// Length of the contraction at `at`, which is an apostrophe; 0: none. Without regard to case, U+017F is an s.
template <bool any_case> std::ptrdiff_t contraction(const char* at, const char* end) {
  const auto letter = [&](std::ptrdiff_t i) {
    if (end - at <= i) return '\0';
    const char c = at[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return letter(2) == 'e' ? 3 : 0;
    case 'l': return letter(2) == 'l' ? 3 : 0;
    case '\xC5': return any_case && letter(2) == '\xBF' ? 3 : 0;
    default: return 0;
  }
}

template <Traits t> class Scanner {
 public:
  explicit Scanner(const char* end) : end_(end), classes_(char_classes()) {}

  const char* word(const char* at) const {
    if (*at == '\'')
      if (const std::ptrdiff_t n = contraction<t.any_case>(at, end_)) return at + n;
    const Character first = decode_utf8(at, end_);
    const CharClass kind = class_of(first);
    if (is_letter(kind)) return letters(at + first.bytes);
    if (kind == CharClass::kNumber) return numbers(at + first.bytes);
    const char* const next = at + first.bytes;

    // One character in front of a word: any in the newer rules, a space in the old one.
    const bool prefix = t.letter_prefix ? first.code != '\r' && first.code != '\n' : first.code == ' ';
    if (prefix && next < end_) {
      const Character second = decode_utf8(next, end_);
      const CharClass kind2 = class_of(second);
      if (is_letter(kind2)) return letters(next + second.bytes);
      if (first.code == ' ') {
        if (!t.letter_prefix && kind2 == CharClass::kNumber) return numbers(next + second.bytes);
        if (is_symbol(kind2)) return symbols(next + second.bytes);
      }
    }
    return kind == CharClass::kSpace ? spaces(at, next) : symbols(next);
  }

 private:
  CharClass class_of(Character c) const { return classes_[c.code]; }
  static bool is_letter(CharClass k) { return k == CharClass::kLetter || (t.marks && k == CharClass::kMark); }
  static bool is_symbol(CharClass k) { return k == CharClass::kOther || (!t.marks && k == CharClass::kMark); }

  template <class Is> const char* run(const char* at, Is&& is) const {
    while (at < end_) {
      const Character c = decode_utf8(at, end_);
      if (!is(class_of(c))) break;
      at += c.bytes;
    }
    return at;
  }
  const char* letters(const char* at) const { return run(at, is_letter); }
  const char* numbers(const char* at) const {
    if (t.digits == 1) return at;
    int left = t.digits - 1;
    return run(at, [&](CharClass k) { return k == CharClass::kNumber && (t.digits == 0 || left-- > 0); });
  }
  const char* symbols(const char* at) const {
    at = run(at, is_symbol);
    if (t.newlines)
      while (at < end_ && (*at == '\r' || *at == '\n')) ++at;
    return at;
  }
  // White space from `at`, the second character at `next`: all of it at the end of the text, else all but the last character, which goes
  // with the word that follows if that takes it.
  const char* spaces(const char* at, const char* next) const {
    const char* newline = is_newline(at) ? next : nullptr;
    const char *last = at, *stop = next;  // the last character and its end
    while (stop < end_) {
      const Character c = decode_utf8(stop, end_);
      if (class_of(c) != CharClass::kSpace) break;
      last = stop;
      stop += c.bytes;
      if (is_newline(last)) newline = stop;
    }
    if (t.newlines && newline) return newline;
    return stop == end_ || last == at ? stop : last;
  }
  static bool is_newline(const char* at) { return *at == '\r' || *at == '\n'; }

  const char* end_;
  const CharClass* classes_;
};

template <SplitRule rule> const char* scan(const char* at, const char* end) {
  return Scanner<kTraits[static_cast<int>(rule)]>(end).word(at);
}

}  // namespace

std::string_view name_of(SplitRule rule) { return kNames[static_cast<int>(rule)]; }
std::string_view regex_of(SplitRule rule) { return kRegexes[static_cast<int>(rule)]; }

WordEnd word_end(SplitRule rule) {
  switch (rule) {
    case SplitRule::kNone: return [](const char*, const char* end) { return end; };
    case SplitRule::kGpt2: return scan<SplitRule::kGpt2>;
    case SplitRule::kLlama3: return scan<SplitRule::kLlama3>;
    case SplitRule::kQwen2: return scan<SplitRule::kQwen2>;
    case SplitRule::kQwen35: return scan<SplitRule::kQwen35>;
  }
  return nullptr;
}

bool safe_cut(std::string_view text, std::size_t at) {
  const char* const cut = text.data() + at;
  const CharClass before = char_classes()[decode_last(text.data(), cut).code];
  if (before != CharClass::kLetter && before != CharClass::kNumber) return false;
  const CharClass after = char_classes()[decode_utf8(cut, text.data() + text.size()).code];
  return after != before && after != CharClass::kMark;
}

}  // namespace flashgpt
