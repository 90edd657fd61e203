// Which characters stand side by side in some piece of a vocabulary. Where a text has a pair that none has, no merge can ever reach across,
// so the text may be cut there without changing an id: what makes words of a text that a tokenizer of SentencePiece's kind takes whole.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace flashgpt {

class CharPairs {
 public:
  void add(std::string_view piece);
  // Code points. "▁" and a space are the same here.
  bool has(std::uint32_t a, std::uint32_t b) const {
    if (a == kMeta) a = ' ';
    if (b == kMeta) b = ' ';
    if ((a | b) < 128) return !ascii_.empty() && ascii_[a << 7 | b];
    return has_wide(a, b);
  }

 private:
  static constexpr std::uint32_t kMeta = 0x2581;
  bool has_wide(std::uint32_t a, std::uint32_t b) const;
  void insert(std::uint64_t key);

  std::vector<std::uint8_t> ascii_;   // [128 * 128], or empty
  std::vector<std::uint64_t> slots_;  // open addressing, 0: free
  std::size_t count_ = 0;
};

}  // namespace flashgpt
