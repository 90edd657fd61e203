// Learning a byte-level BPE: the words of a text are counted, then the most frequent pair of neighbours becomes a piece, again and again.
//
// Of equally frequent pairs the one with the smaller ids comes first, and the ids of bytes are in the order of their names (data/tokenizer/
// byte_names.h), so the merges are those that the trainer of Hugging Face's `tokenizers` finds with the same words and min_frequency = 2.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/threads.h"
#include "data/tokenizer/split.h"

namespace flashgpt {

// Counts words on all threads; memory grows with the number of different words up to a bound, where those met once are forgotten.
class WordCounter {
 public:
  WordCounter(SplitRule rule, ThreadPool& pool) : word_end_(word_end(rule)), pool_(pool) {}

  void append(std::string_view text);  // of the document that is open
  void end_document();

  struct Word {
    std::string text;
    std::int64_t count;
  };
  std::vector<Word> finish();  // by text

  static constexpr std::size_t kLongestWord = 1024;  // bytes; longer ones are data, not words, and are left out
  static constexpr std::size_t kMostWords = 2'000'000;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  using Counts = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;
  void put(std::string_view text);
  void flush();

  WordEnd word_end_;
  ThreadPool& pool_;
  std::string open_;
  std::vector<std::string> blocks_;
  std::size_t waiting_bytes_ = 0;
  Counts counts_;
};

struct LearnedBpe {
  std::vector<std::string> pieces;  // bytes of each id: the 256 bytes, then what merges make
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
};

// Up to `pieces` pieces (at least 256); fewer when no pair of neighbours is left that stands twice.
LearnedBpe learn_bpe(const std::vector<WordCounter::Word>& words, std::int64_t pieces);

}  // namespace flashgpt
