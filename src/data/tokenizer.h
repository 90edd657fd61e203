// Text to ids and back.
//
// A tokenizer is a tokenizer.json (data/tokenizer/tokenizer_json.h): a byte-level BPE, such as `data prepare --vocab-size` trains and
// GPT-2, Llama 3 and Qwen have, or a BPE of SentencePiece's kind (Llama 2, Mistral). Ids are those of Hugging Face's `tokenizers`. The
// vocabulary of bytes is the byte-level BPE without merges: id b is byte b (0 .. 255), id 256 is end-of-text. Bytes that are no UTF-8 are
// encoded too and come back as they were, as far as no normalizer (NFC, "▁" for a space) touches the text.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/encoder.h"

namespace flashgpt {

// What data says of the tokenizer that made it.
struct TokenizerInfo {
  std::string name;
  std::int64_t vocab_size = 0;
  std::int32_t end_of_text = 0;
  // Of the name, the bytes of every id, and end-of-text, and all else that decides ids: data made with one tokenizer is refused with
  // another.
  std::uint64_t hash = 0;
};

class Tokenizer {
 public:
  static Tokenizer bytes();
  // Reads FOLDER/tokenizer.json, or the file itself. What ends a text is the eos_token of tokenizer_config.json beside it, else
  // eos_token_id of generation_config.json or config.json, else an added token of a usual name. An Error says what is not as expected.
  static Tokenizer load(const std::string& path);
  // The text of a tokenizer.json, and its name for messages. An added token of a usual name ends a text.
  static Tokenizer parse(std::string json, const std::string& what);
  // FOLDER/tokenizer.json, as it was read, and tokenizer_config.json: what stood in that file (a chat template), and eos_token; when there
  // was none, `transformers` is told to take tokenizer.json as it is.
  void save(const std::string& folder) const;

  // Appends the ids of the text. By default text never makes end-of-text, whatever it says.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials = Specials::kAsText) const;
  // What a model is given to continue: special tokens are parsed, and those that belong in front (<s>) are put there.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;
  // Bytes of an id, valid as long as the tokenizer; empty for end-of-text and other special tokens. An Error for an id outside the
  // vocabulary.
  std::string_view decode(std::int32_t id) const;

  // For much text: one encoder for each thread; see also data/tokenizer/encode_stream.h.
  Encoder encoder() const { return Encoder(tables_); }
  const TokenizerTables& tables() const { return *tables_; }

  const TokenizerInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  std::int64_t vocab_size() const { return info_.vocab_size; }
  std::int32_t end_of_text() const { return info_.end_of_text; }
  // Further ids that end a text (an instruction model's <|im_end|>), and end_of_text itself.
  const std::vector<std::int32_t>& stops() const { return stops_; }
  std::uint64_t hash() const { return info_.hash; }
  // Bytes of text that each id stands for.
  std::vector<std::int32_t> token_bytes() const;

 private:
  Tokenizer() = default;
  static Tokenizer make(TokenizerModel model, std::string json, const std::string& what, std::vector<std::int32_t> stops);

  TokenizerInfo info_;
  std::vector<std::int32_t> stops_;
  std::shared_ptr<const TokenizerTables> tables_;
  std::shared_ptr<const std::string> json_, config_;  // tokenizer.json and tokenizer_config.json as they were read; config_ may be null
};

}  // namespace flashgpt
