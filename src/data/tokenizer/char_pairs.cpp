#include "data/tokenizer/char_pairs.h"

#include <cstddef>
#include <utility>

#include "data/tokenizer/unicode.h"

namespace flashgpt {
namespace {

std::uint64_t key_of(std::uint32_t a, std::uint32_t b) { return static_cast<std::uint64_t>(a) << 32 | b; }
std::size_t hash(std::uint64_t key) { return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> 32); }

}  // namespace

void CharPairs::add(std::string_view piece) {
  if (ascii_.empty()) ascii_.resize(std::size_t{128} * 128);
  std::uint32_t before = kCodePoints;
  for (const char *at = piece.data(), *end = at + piece.size(); at < end;) {
    const Character c = decode_utf8(at, end);
    const std::uint32_t code = c.code == kMeta ? ' ' : c.code;
    if (before < 128 && code < 128)
      ascii_[before << 7 | code] = 1;
    else if (before != kCodePoints)
      insert(key_of(before, code));
    before = code;
    at += c.bytes;
  }
}

void CharPairs::insert(std::uint64_t key) {
  if (slots_.size() < 2 * (count_ + 1)) {
    const std::vector<std::uint64_t> old = std::exchange(slots_, std::vector<std::uint64_t>(slots_.empty() ? 1024 : 2 * slots_.size()));
    count_ = 0;
    for (const std::uint64_t k : old)
      if (k) insert(k);
  }
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash(key) & mask;
  while (slots_[i] && slots_[i] != key) i = (i + 1) & mask;
  count_ += slots_[i] == 0;
  slots_[i] = key;
}

bool CharPairs::has_wide(std::uint32_t a, std::uint32_t b) const {
  if (slots_.empty()) return false;
  const std::uint64_t key = key_of(a, b);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash(key) & mask; slots_[i]; i = (i + 1) & mask)
    if (slots_[i] == key) return true;
  return false;
}

}  // namespace flashgpt
