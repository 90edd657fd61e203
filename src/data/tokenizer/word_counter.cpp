#include <algorithm>

#include "data/tokenizer/bpe_training.h"

namespace flashgpt {
namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10;  // bytes counted by one task
constexpr std::size_t kFlush = 64 * kBlock;             // the same for any number of threads, so that the words forgotten are the same

}  // namespace

void WordCounter::append(std::string_view text) {
  constexpr std::size_t kContext = 4;  // a character
  open_ += text;
  if (open_.size() < kBlock) return;
  std::size_t at = open_.size() - kContext;
  while (at > 0 && !safe_cut(open_, at)) --at;
  if (at == 0) {
    if (open_.size() < 4 * kBlock) return;
    at = open_.size() - kContext;
  }
  for (std::size_t done = 0; done < at;) {
    std::size_t end = std::min(at, done + kBlock);
    while (end < at && !safe_cut(open_, end)) ++end;
    put(std::string_view(open_).substr(done, end - done));
    done = end;
  }
  open_.erase(0, at);
}

void WordCounter::end_document() {
  if (!open_.empty()) put(open_);
  open_.clear();
}

void WordCounter::put(std::string_view text) {
  blocks_.emplace_back(text);
  waiting_bytes_ += text.size();
  if (waiting_bytes_ >= kFlush) flush();
}

void WordCounter::flush() {
  std::vector<Counts> parts(static_cast<std::size_t>(pool_.size()));
  pool_.parallel_for(static_cast<std::int64_t>(blocks_.size()), [&](std::int64_t task, int worker) {
    Counts& counts = parts[static_cast<std::size_t>(worker)];
    const std::string& block = blocks_[static_cast<std::size_t>(task)];
    const char* const end = block.data() + block.size();
    for (const char* at = block.data(); at < end;) {
      const char* const stop = word_end_(at, end);
      const std::string_view word(at, static_cast<std::size_t>(stop - at));
      at = stop;
      if (word.size() > kLongestWord) continue;
      const auto found = counts.find(word);
      if (found != counts.end())
        ++found->second;
      else
        counts.emplace(word, 1);
    }
  });
  for (Counts& part : parts)
    for (auto& [word, count] : part) counts_[word] += count;
  if (counts_.size() > kMostWords) std::erase_if(counts_, [](const auto& w) { return w.second == 1; });
  blocks_.clear();
  waiting_bytes_ = 0;
}

std::vector<WordCounter::Word> WordCounter::finish() {
  end_document();
  flush();
  std::vector<Word> words;
  words.reserve(counts_.size());
  for (auto& [text, count] : counts_) words.push_back({text, count});
  std::sort(words.begin(), words.end(), [](const Word& a, const Word& b) { return a.text < b.text; });
  counts_.clear();
  return words;
}

}  // namespace flashgpt
