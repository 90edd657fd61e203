// Text to ids and back. The vocabulary of bytes: id b is byte b (0 .. 255), id 256 is end-of-text; any text, and any file, can be encoded.
//
// On disk it is a Hugging Face tokenizer.json: a byte-level BPE without merges, whose vocabulary names byte b by the character that GPT-2
// maps it to, and <|endoftext|> as an added token; `tokenizers` and `transformers` read it as it is.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flashgpt {

// What data says of the tokenizer that made it.
struct TokenizerInfo {
  std::string name;
  std::int64_t vocab_size = 0;
  std::int32_t end_of_text = 0;
  // Of the name, the bytes of every id, and end-of-text: data made with one tokenizer is refused with another.
  std::uint64_t hash = 0;
};

class Tokenizer {
 public:
  static Tokenizer bytes();
  // Reads FOLDER/tokenizer.json. An Error says what is not as expected.
  static Tokenizer load(const std::string& folder);
  void save(const std::string& folder) const;

  // Appends the ids of the text. Text never makes end-of-text, whatever it says.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;
  // Bytes of an id, valid as long as the tokenizer; empty for end-of-text. An Error for an id outside the vocabulary.
  std::string_view decode(std::int32_t id) const;

  const TokenizerInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  std::int64_t vocab_size() const { return info_.vocab_size; }
  std::int32_t end_of_text() const { return info_.end_of_text; }
  std::uint64_t hash() const { return info_.hash; }
  // Bytes of text that each id stands for.
  std::vector<std::int32_t> token_bytes() const;

 private:
  Tokenizer() = default;

  TokenizerInfo info_;
  std::vector<std::string> tokens_;  // bytes of each id
};

}  // namespace flashgpt
