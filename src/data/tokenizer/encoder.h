// Encoding on one thread: added tokens, normalizer, words, merges, with the words met last remembered. It keeps its memory from call to
// call.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/merges.h"
#include "data/tokenizer/model.h"

namespace flashgpt {

enum class Specials : std::uint8_t {
  kAsText,  // a text that says <|endoftext|> is encoded as these letters; added tokens that are not special count
  kParse,   // it becomes that id
};

class Encoder {
 public:
  explicit Encoder(std::shared_ptr<const TokenizerTables> tables);
  ~Encoder();
  Encoder(Encoder&&) noexcept;

  // Appends. first: the text begins here, so it gets the space in front that some tokenizers add.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials, bool first = true);

 private:
  struct CachedWord;
  void stretch(std::string_view text, bool first, bool continues);  // between added tokens of the raw text
  void words(std::string_view text);
  void word(std::string_view text);
  void merged(std::string_view text);

  std::shared_ptr<const TokenizerTables> tables_;
  WordMerger merger_;
  std::vector<CachedWord> cache_;  // empty until there is much to encode
  std::size_t seen_ = 0;           // bytes
  std::vector<std::int32_t> symbols_;
  std::string normalized_, pre_tokenized_;
  std::vector<std::int32_t>* ids_ = nullptr;
  Specials specials_ = Specials::kAsText;
};

// Whether text[0, at) and text[at, size) may be encoded one after the other, the second with first = false. Looks at what stands around
// `at` only: 0 < at < size, and unless the text ends there, at least context_bytes() of it follow.
bool safe_cut(const TokenizerTables& tables, std::string_view text, std::size_t at);
std::size_t context_bytes(const TokenizerTables& tables);

}  // namespace flashgpt
