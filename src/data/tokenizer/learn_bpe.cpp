#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <span>

#include "data/tokenizer/bpe_training.h"
#include "data/tokenizer/byte_names.h"

namespace flashgpt {
namespace {

constexpr std::int64_t kFewest = 2;  // occurrences of a pair that becomes a piece

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

struct Candidate {
  std::int64_t count;
  std::uint64_t pair;
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
};

class Learner {
 public:
  explicit Learner(const std::vector<WordCounter::Word>& words) {
    std::array<int, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), 0);
    std::stable_sort(bytes.begin(), bytes.end(), [](int a, int b) { return name_of_byte(a) < name_of_byte(b); });
    std::array<std::int32_t, 256> ids{};
    for (int b : bytes) {
      ids[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(bpe_.pieces.size());
      ids_.emplace(bpe_.pieces.emplace_back(1, static_cast<char>(b)), ids[static_cast<std::size_t>(b)]);
    }
    for (const WordCounter::Word& w : words) {
      words_.push_back({.begin = symbols_.size(), .size = w.text.size(), .count = w.count});
      for (const char c : w.text) symbols_.push_back(ids[static_cast<unsigned char>(c)]);
    }
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const std::span<std::int32_t> s = symbols(w);
      for (std::size_t i = 0; i + 1 < s.size(); ++i) change(key_of(s[i], s[i + 1]), words_[w].count, w);
    }
    for (const auto& [pair, p] : pairs_) heap_.push({p.count, pair});
  }

  LearnedBpe learn(std::int64_t pieces) {
    while (static_cast<std::int64_t>(bpe_.pieces.size()) < pieces && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      Pair& pair = pairs_[best.pair];
      if (pair.count != best.count) {  // it changed since
        if (pair.count >= kFewest) heap_.push({pair.count, best.pair});
        continue;
      }
      if (best.count < kFewest) break;
      join(best.pair);
    }
    return std::move(bpe_);
  }

 private:
  struct Word {
    std::size_t begin, size;  // of its symbols
    std::int64_t count;
  };
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // that had it at some time
  };

  std::span<std::int32_t> symbols(std::size_t word) { return {symbols_.data() + words_[word].begin, words_[word].size}; }

  void change(std::uint64_t pair, std::int64_t by, std::size_t word) {
    Pair& p = pairs_[pair];
    p.count += by;
    if (by > 0 && (p.words.empty() || p.words.back() != word)) p.words.push_back(static_cast<std::uint32_t>(word));
    if (by > 0) grown_.push_back(pair);
  }

  void join(std::uint64_t pair) {
    const auto left = static_cast<std::int32_t>(pair >> 32), right = static_cast<std::int32_t>(pair & 0xFFFFFFFF);
    const std::string text = bpe_.pieces[static_cast<std::size_t>(left)] + bpe_.pieces[static_cast<std::size_t>(right)];
    const auto [place, fresh] = ids_.emplace(text, static_cast<std::int32_t>(bpe_.pieces.size()));
    if (fresh) bpe_.pieces.push_back(text);
    const std::int32_t id = place->second;
    bpe_.merges.emplace_back(left, right);

    grown_.clear();
    const std::vector<std::uint32_t> where = std::move(pairs_[pair].words);
    for (const std::uint32_t w : where) join_in(w, left, right, id);
    pairs_[pair] = {};
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const std::uint64_t p : grown_)
      if (const std::int64_t count = pairs_[p].count; count >= kFewest) heap_.push({count, p});
  }

  void join_in(std::size_t w, std::int32_t left, std::int32_t right, std::int32_t id) {
    const std::span<std::int32_t> s = symbols(w);
    const std::int64_t count = words_[w].count;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (i + 1 == s.size() || s[i] != left || s[i + 1] != right) {
        s[kept++] = s[i];
        continue;
      }
      if (kept > 0) {
        change(key_of(s[kept - 1], left), -count, w);
        change(key_of(s[kept - 1], id), count, w);
      }
      if (i + 2 < s.size()) {
        change(key_of(right, s[i + 2]), -count, w);
        change(key_of(id, s[i + 2]), count, w);
      }
      s[kept++] = id;
      ++i;
    }
    words_[w].size = kept;
  }

  LearnedBpe bpe_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<std::uint64_t> grown_;
};

}  // namespace

LearnedBpe learn_bpe(const std::vector<WordCounter::Word>& words, std::int64_t pieces) { return Learner(words).learn(pieces); }

}  // namespace flashgpt
