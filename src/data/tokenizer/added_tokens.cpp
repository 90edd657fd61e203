#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "data/tokenizer/unicode.h"

namespace flashgpt {
namespace {

bool is_space(Character c) { return char_classes()[c.code] == CharClass::kSpace; }
unsigned char byte(char c) { return static_cast<unsigned char>(c); }

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    if (a.content[0] != b.content[0]) return byte(a.content[0]) < byte(b.content[0]);
    return a.content.size() > b.content.size();
  });
  for (const AddedToken& t : tokens_) {
    ++first_[byte(t.content[0]) + 1u];
    longest_ = std::max(longest_, t.content.size());
  }
  for (std::size_t b = 0; b < 256; ++b) first_[b + 1] += first_[b];
}

const AddedToken* AddedTokenFinder::at(std::string_view text, std::size_t place) const {
  const unsigned char b = byte(text[place]);
  for (std::uint32_t i = first_[b]; i < first_[b + 1u]; ++i)
    if (text.substr(place).starts_with(tokens_[i].content)) return &tokens_[i];
  return nullptr;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, std::size_t from, std::size_t floor) const {
  if (tokens_.empty()) return {text.size(), text.size(), nullptr};
  for (std::size_t i = from; i < text.size(); ++i)
    if (const AddedToken* t = at(text, i)) {
      Match m{i, i + t->content.size(), t};
      const char* const data = text.data();
      while (t->lstrip && m.begin > floor) {
        const Character c = decode_last(data + floor, data + m.begin);
        if (!is_space(c)) break;
        m.begin -= c.bytes;
      }
      while (t->rstrip && m.end < text.size()) {
        const Character c = decode_utf8(data + m.end, data + text.size());
        if (!is_space(c)) break;
        m.end += c.bytes;
      }
      return m;
    }
  return {text.size(), text.size(), nullptr};
}

bool AddedTokenFinder::touches(std::string_view text, std::size_t place) const {
  if (tokens_.empty()) return false;
  const std::size_t from = place > longest_ ? place - longest_ : 0;
  for (std::size_t i = from; i <= place && i < text.size(); ++i) {
    const unsigned char b = byte(text[i]);
    for (std::uint32_t t = first_[b]; t < first_[b + 1u]; ++t)
      if (i + tokens_[t].content.size() >= place && text.substr(i).starts_with(tokens_[t].content)) return true;
  }
  return false;
}

}  // namespace flashgpt
