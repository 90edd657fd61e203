// A stream of tokens in memory: documents one after the other, each ended by end-of-text, in one or more pieces (the payloads of shards,
// mapped). It owns nothing: whoever made it keeps the pieces alive.
#pragma once
#include <cstdint>
#include <vector>

namespace flashgpt {

// count tokens of `width` bytes each (2: uint16, 4: uint32, little endian).
struct TokenSpan {
  const void* data = nullptr;
  std::int64_t count = 0;
  int width = 2;
};

class TokenStream {
 public:
  TokenStream() = default;
  // token_bytes[id]: bytes of text that the token stands for (0 for end-of-text); its size is the vocabulary's.
  // An Error when there is no token, or a piece does not end with end-of-text.
  TokenStream(std::vector<TokenSpan> spans, std::vector<std::int32_t> token_bytes, std::int32_t end_of_text);

  std::int64_t size() const { return starts_.empty() ? 0 : starts_.back(); }
  std::int32_t end_of_text() const { return end_of_text_; }
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(token_bytes_.size()); }
  std::int32_t text_bytes(std::int32_t id) const { return token_bytes_[static_cast<std::size_t>(id)]; }

  // Tokens [begin, begin + count) to out; positions count on past the end to the beginning. 0 <= begin < size().
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

 private:
  std::vector<TokenSpan> spans_;
  std::vector<std::int64_t> starts_;  // [spans + 1]
  std::vector<std::int32_t> token_bytes_;
  std::int32_t end_of_text_ = 0;
};

}  // namespace flashgpt
