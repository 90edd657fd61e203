#include "data/tokenizer/split.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "data/tokenizer/byte_names.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/unicode.h"

namespace flashgpt::testing {
namespace {

using Words = std::vector<std::string>;

Words words_of(SplitRule rule, std::string_view text) {
  const WordEnd word_end = flashgpt::word_end(rule);
  Words words;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const stop = word_end(at, end);
    words.emplace_back(at, stop);
    at = stop;
  }
  return words;
}

TEST(Split, Gpt2) {
  const auto words = [](std::string_view text) { return words_of(SplitRule::kGpt2, text); };
  EXPECT_EQ(words("I'm fine, it's 2024!"), (Words{"I", "'m", " fine", ",", " it", "'s", " 2024", "!"}));
  EXPECT_EQ(words("a  b   \n c\n\n"), (Words{"a", " ", " b", "   \n", " c", "\n\n"}));
  EXPECT_EQ(words("\tx"), (Words{"\t", "x"}));
  EXPECT_EQ(words("I'M 'sx'"), (Words{"I", "'", "M", " '", "sx", "'"}));
  EXPECT_EQ(words("12ab 34"), (Words{"12", "ab", " 34"}));
  EXPECT_EQ(words(""), Words{});
}

TEST(Split, Llama3AndQwen) {
  const auto words = [](std::string_view text) { return words_of(SplitRule::kLlama3, text); };
  EXPECT_EQ(words("I'M 12345 (x)\n\n  y"), (Words{"I", "'M", " ", "123", "45", " (", "x", ")\n\n", " ", " y"}));
  EXPECT_EQ(words("\tx =\r\n"), (Words{"\tx", " =\r\n"}));
  EXPECT_EQ(words("a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(words("'\xC5\xBF!"), (Words{"'\xC5\xBF", "!"}));  // U+017F, a long s
  EXPECT_EQ(words_of(SplitRule::kQwen2, "x123"), (Words{"x", "1", "2", "3"}));
  // A combining mark is a letter for the newest only.
  EXPECT_EQ(words_of(SplitRule::kQwen2, "e\xCC\x81x"), (Words{"e", "\xCC\x81x"}));
  EXPECT_EQ(words_of(SplitRule::kQwen35, "e\xCC\x81x"), (Words{"e\xCC\x81x"}));
}

// The words of two parts are those of the whole wherever safe_cut says so, and it says so often.
TEST(Split, SafeCutsChangeNoWord) {
  std::mt19937 random(3);
  const char* const parts[] = {"a",    "Z",        "1",       " ",  "  ",       "\n",           "\r",           "'",
                               "s",    "re",       ".",       "\t", "\xCC\x81", "\xE4\xB8\xAD", "\xE3\x80\x80", "\xFF",
                               "\xE4", "\xC5\xBF", "\xD9\xA3"};
  std::int64_t safe = 0, all = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::uint32_t n = 2 + random() % 14; n > 0; --n) text += parts[random() % std::size(parts)];
    for (std::size_t at = 1; at < text.size(); ++at, ++all) {
      if (!safe_cut(text, at)) continue;
      ++safe;
      for (const SplitRule rule : kRegexRules) {
        Words two = words_of(rule, text.substr(0, at));
        const Words second = words_of(rule, text.substr(at));
        two.insert(two.end(), second.begin(), second.end());
        EXPECT_EQ(two, words_of(rule, text)) << name_of(rule) << " at " << at;
      }
    }
  }
  EXPECT_GT(safe, all / 10);
}

TEST(Unicode, DecodesWhatIsValidOnly) {
  const auto decode = [](std::string_view s) { return decode_utf8(s.data(), s.data() + s.size()); };
  EXPECT_EQ(decode("\xF0\x9F\x98\x80").code, 0x1F600u);
  EXPECT_EQ(decode("\xF4\x8F\xBF\xBF").code, 0x10FFFFu);
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xE4\xB8", "\xFF"}) {
    EXPECT_EQ(decode(bad).code, kNoCharacter);
    EXPECT_EQ(decode(bad).bytes, 1u);
  }
  for (std::uint32_t code = 0; code < kCodePoints; code += code < 0x3000 ? 1 : 97) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text = "\x80";
    append_utf8(text, code);
    EXPECT_EQ(decode(std::string_view(text).substr(1)).code, code);
    EXPECT_EQ(decode_last(text.data(), text.data() + text.size()).code, code);
  }
}

TEST(Unicode, Classes) {
  const CharClass* const c = char_classes();
  EXPECT_EQ(c['a'], CharClass::kLetter);
  EXPECT_EQ(c[0x4E2D], CharClass::kLetter);
  EXPECT_EQ(c[0x1C89], CharClass::kLetter);  // of Unicode 16
  EXPECT_EQ(c[0x00BD], CharClass::kNumber);
  EXPECT_EQ(c[0x0301], CharClass::kMark);
  EXPECT_EQ(c[0x3000], CharClass::kSpace);
  EXPECT_EQ(c[0x200B], CharClass::kOther);
  EXPECT_EQ(c[kNoCharacter], CharClass::kOther);
}

TEST(Nfc, ComposesAndOrders) {
  const auto normal = [](std::string_view text) {
    std::string buffer;
    return std::string(nfc(text, buffer));
  };
  EXPECT_EQ(normal("plain"), "plain");
  EXPECT_EQ(normal(""), "");
  EXPECT_EQ(normal("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normal("x e\xCC\x81 y\xFF"
                   "e\xCC\x81"),
            "x \xC3\xA9 y\xFF\xC3\xA9");                                      // bytes stay
  EXPECT_EQ(normal("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87");                // 0307 0323 -> 0323 0307
  EXPECT_EQ(normal("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");  // Hangul
  EXPECT_EQ(normal("\xEA\xB0\x80\xE1\x86\xA8"), "\xEA\xB0\x81");              // a syllable and its end
  EXPECT_EQ(normal("\xE2\x84\xAB"), "\xC3\x85");                              // U+212B, one for one
  EXPECT_EQ(normal("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");              // excluded from composition
  EXPECT_EQ(normal("a\xCD\xB4"), "a\xCA\xB9");                                // U+0374
  EXPECT_EQ(normal("\xCC\x81"
                   "e"),
            "\xCC\x81"
            "e");                                              // nothing before it
  EXPECT_EQ(normal("e\xCC\xB4\xCC\x81"), "\xC3\xA9\xCC\xB4");  // across a mark of a lower class
}

TEST(ByteNames, ThereAndBack) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(bytes_of_names(names_of_bytes(all)), all);
  EXPECT_EQ(names_of_bytes(" \n"), "\xC4\xA0\xC4\x8A");
  EXPECT_FALSE(bytes_of_names(" "));
  EXPECT_FALSE(bytes_of_names("\xE4\xB8\xAD"));
}

}  // namespace
}  // namespace flashgpt::testing
