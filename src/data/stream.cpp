#include "data/stream.h"

#include <algorithm>
#include <cstring>

#include "flashgpt/error.h"

namespace flashgpt {

namespace {

template <class T> void widen(const void* data, std::int64_t begin, std::int64_t count, std::int32_t* out) {
  const T* tokens = static_cast<const T*>(data) + begin;
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(tokens[i]);
}

}  // namespace

TokenStream::TokenStream(std::vector<TokenSpan> spans, std::vector<std::int32_t> token_bytes, std::int32_t end_of_text)
    : spans_(std::move(spans)), starts_{0}, token_bytes_(std::move(token_bytes)), end_of_text_(end_of_text) {
  require(end_of_text >= 0 && end_of_text < vocab_size(), "end_of_text = ", end_of_text, ", expected an id of the vocabulary of ",
          vocab_size());
  std::erase_if(spans_, [](const TokenSpan& s) { return s.count == 0; });
  for (const TokenSpan& s : spans_) {
    require(s.width == 2 || s.width == 4, "tokens of ", s.width, " bytes, expected 2 or 4");
    starts_.push_back(starts_.back() + s.count);
    std::int32_t last = 0;
    copy(starts_.back() - 1, 1, &last);
    require(last == end_of_text_, "the token stream does not end with end-of-text (", end_of_text_, "): its last token is ", last);
  }
  require(size() > 0, "the token stream is empty: no document has any text");
}

void TokenStream::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  auto i = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1);
  while (count > 0) {
    const TokenSpan& s = spans_[i];
    const std::int64_t offset = begin - starts_[i], n = std::min(count, s.count - offset);
    if (s.width == 2)
      widen<std::uint16_t>(s.data, offset, n, out);
    else
      widen<std::uint32_t>(s.data, offset, n, out);
    out += n;
    count -= n;
    begin += n;
    if (++i == spans_.size()) begin = 0, i = 0;
  }
}

}  // namespace flashgpt
