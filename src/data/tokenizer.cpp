#include "data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "flashgpt/error.h"
#include "io/file.h"
#include "io/json.h"

namespace flashgpt {

namespace {

constexpr const char* kFile = "/tokenizer.json";
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr int kByteValues = 256;

// GPT-2's names of bytes: printable characters of Latin-1 are themselves, the others count on from U+0100. UTF-8.
std::string name_of_byte(int byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF); };
  int code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += !printable(b);
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

OrderedJson byte_level(bool decoder) {
  OrderedJson j{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  j["use_regex"] = decoder;  // a decoder does not look at it; true is what the library writes there
  return j;
}

}  // namespace

Tokenizer Tokenizer::bytes() {
  Tokenizer t;
  for (int b = 0; b < kByteValues; ++b) t.tokens_.push_back(std::string(1, static_cast<char>(b)));
  t.tokens_.emplace_back();
  t.info_ = {.name = "bytes", .vocab_size = kByteValues + 1, .end_of_text = kByteValues};
  Checksum64 sum(static_cast<std::uint64_t>(t.end_of_text()));
  const auto add = [&](const std::string& s) {
    const std::uint64_t size = s.size();
    sum.update(std::as_bytes(std::span(&size, 1)));
    sum.update(std::as_bytes(std::span(s)));
  };
  add(t.name());
  for (const std::string& s : t.tokens_) add(s);
  t.info_.hash = sum.value();
  return t;
}

void Tokenizer::save(const std::string& folder) const {
  OrderedJson vocab = OrderedJson::object();
  for (int b = 0; b < kByteValues; ++b) vocab[name_of_byte(b)] = b;
  const OrderedJson added{{"id", end_of_text()}, {"content", kEndOfText}, {"single_word", false}, {"lstrip", false},
                          {"rstrip", false},     {"normalized", false},   {"special", true}};
  OrderedJson j;
  j["version"] = "1.0";
  j["truncation"] = nullptr;
  j["padding"] = nullptr;
  j["added_tokens"] = OrderedJson::array({added});
  j["normalizer"] = nullptr;
  j["pre_tokenizer"] = byte_level(false);
  j["post_processor"] = nullptr;
  j["decoder"] = byte_level(true);
  j["model"] = OrderedJson{{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"vocab", vocab},
                           {"merges", OrderedJson::array()}};
  write_atomic(folder + kFile, pretty_json(j));
}

Tokenizer Tokenizer::load(const std::string& folder) {
  const std::string path = folder + kFile;
  const Json j = parse_json(read_file(path), path);
  try {
    const Json& model = j.at("model");
    const auto type = model.at("type").get<std::string>();
    require(type == "BPE" && model.at("merges").empty() && model.at("vocab").size() == kByteValues, path, " holds a ", type,
            " vocabulary of ", model.at("vocab").size(), " tokens with ", model.at("merges").size(),
            " merges, expected the byte vocabulary: 256 bytes, no merges");
    for (int b = 0; b < kByteValues; ++b)
      require(model.at("vocab").at(name_of_byte(b)) == b, path, ": byte ", b, " is id ", model.at("vocab").at(name_of_byte(b)).dump(),
              ", expected the byte's value");
    const Json& added = j.at("added_tokens");
    require(added.size() == 1 && added[0].at("id") == kByteValues && added[0].at("content") == kEndOfText, path, ": added tokens ",
            added.dump(), ", expected ", kEndOfText, " with id ", kByteValues, " alone");
  } catch (const Json::exception& e) {
    fail(path, " is not the tokenizer of a byte vocabulary: ", e.what());
  }
  return bytes();
}

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::size_t first = ids.size();
  ids.resize(first + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) ids[first + i] = static_cast<unsigned char>(text[i]);
}

std::string_view Tokenizer::decode(std::int32_t id) const {
  require(id >= 0 && id < vocab_size(), "token ", id, ", expected an id below the vocabulary of ", vocab_size());
  return tokens_[static_cast<std::size_t>(id)];
}

std::vector<std::int32_t> Tokenizer::token_bytes() const {
  std::vector<std::int32_t> bytes;
  for (const std::string& s : tokens_) bytes.push_back(static_cast<std::int32_t>(s.size()));
  return bytes;
}

}  // namespace flashgpt
