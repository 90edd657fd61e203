// What a tokenizer.json says, as plain data, and the tables that encoding needs.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/char_pairs.h"
#include "data/tokenizer/merges.h"
#include "data/tokenizer/split.h"

namespace flashgpt {

// Who writes spaces as "▁": nobody, the normalizer (before added tokens of the normalized kind are found), or the pre-tokenizer (after).
enum class MetaSpaces : std::uint8_t { kNone, kNormalizer, kPreTokenizer };

// Whether a text gets a "▁" in front (SentencePiece's "dummy prefix").
enum class Prefix : std::uint8_t {
  kNever,
  kEvery,         // each stretch of text between added tokens, whatever it begins with (a Prepend normalizer)
  kEveryMissing,  // each stretch that does not begin with one (Metaspace, "always")
  kFirstMissing,  // the same, at the beginning of the text only (Metaspace, "first")
};

struct TokenizerModel {
  bool byte_level = true;  // pieces are bytes by GPT-2's names; else characters, spaces as "▁", other characters as byte pieces "<0xE4>"
  SplitRule split = SplitRule::kNone;
  bool nfc = false;
  MetaSpaces meta_spaces = MetaSpaces::kNone;
  Prefix prefix = Prefix::kNever;
  bool ignore_merges = false;       // a word that is a piece is that piece, reachable by merges or not
  std::vector<std::string> pieces;  // by id, as the file writes them; empty: no piece of the vocabulary
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::vector<std::int32_t> prompt_prefix;  // ids that the post-processor puts before a text, such as <s>

  std::int64_t vocab_size() const;  // ids, those of added tokens included
};

inline constexpr std::string_view kMetaSpace = "\xE2\x96\x81";  // U+2581

// The model with what encoding looks up. Everything is checked: every byte can be encoded, ids are in range.
struct TokenizerTables {
  TokenizerTables(TokenizerModel m, const std::string& what);

  TokenizerModel model;
  MergeTable merges;
  WordEnd word_end;
  AddedTokenFinder raw_tokens, normalized_tokens;
  std::array<std::int32_t, 256> byte_ids{};             // of single bytes
  std::vector<std::int32_t> char_ids;                   // of single characters by code point, -1: none; not for byte level
  CharPairs pairs;                                      // characters that stand side by side in a piece; not for byte level
  std::unordered_map<std::string, std::int32_t> whole;  // bytes of every piece, when merges are ignored
  std::vector<std::string> text;                        // bytes of each id; empty for special tokens
};

// The text itself, or what it became, in `buffer`.
std::string_view normalize(const TokenizerModel& model, std::string_view text, std::string& buffer);
// What the pre-tokenizer makes of a stretch of text; first: it begins the text.
std::string_view pre_tokenize(const TokenizerModel& model, std::string_view text, bool first, std::string& buffer);

}  // namespace flashgpt
