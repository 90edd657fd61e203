#include "data/tokenizer/bpe_training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "data/tokenizer.h"
#include "data/tokenizer/byte_names.h"
#include "data/tokenizer/merges.h"
#include "data/tokenizer/tokenizer_json.h"

namespace flashgpt::testing {
namespace {

std::string random_text(std::uint32_t seed, std::size_t size) {
  std::mt19937 random(seed);
  const char* const words[] = {"low", " lower",  " newest", " widest", "aaaa", " aaaaa",
                               "\n",  " banana", "ana",     "!",       " 12",  "\xE4\xB8\xAD\xE6\x96\x87"};
  std::string text;
  while (text.size() < size)
    text += random() % 9 ? words[random() % std::size(words)] : std::string(1 + random() % 5, static_cast<char>('a' + random() % 4));
  return text;
}

std::vector<WordCounter::Word> count(std::string_view text, int threads, std::size_t step) {
  ThreadPool pool(threads, false);
  WordCounter counter(SplitRule::kGpt2, pool);
  for (std::size_t at = 0; at < text.size(); at += step) counter.append(text.substr(at, step));
  return counter.finish();
}

TEST(WordCounter, CountsTheSameHoweverTheTextComes) {
  const std::string text = random_text(1, 1500000);
  std::map<std::string, std::int64_t> expected;
  const WordEnd word_end = flashgpt::word_end(SplitRule::kGpt2);
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const char* const stop = word_end(at, end);
    if (static_cast<std::size_t>(stop - at) <= WordCounter::kLongestWord) ++expected[std::string(at, stop)];
    at = stop;
  }
  for (const auto& [threads, step] : {std::pair(1, std::size_t{7777}), std::pair(3, text.size())}) {
    const std::vector<WordCounter::Word> words = count(text, threads, step);
    ASSERT_EQ(words.size(), expected.size());
    std::size_t i = 0;
    for (const auto& [word, n] : expected) {
      EXPECT_EQ(words[i].text, word);
      EXPECT_EQ(words[i++].count, n);
    }
  }
}

// The definition: count all pairs anew for every merge.
LearnedBpe learn_slowly(const std::vector<WordCounter::Word>& words, std::size_t pieces) {
  LearnedBpe bpe = learn_bpe({}, 256);  // the bytes
  std::map<std::string, std::int32_t> ids;
  for (std::size_t i = 0; i < bpe.pieces.size(); ++i) ids[bpe.pieces[i]] = static_cast<std::int32_t>(i);
  std::vector<std::vector<std::int32_t>> symbols;
  for (const WordCounter::Word& w : words) {
    symbols.emplace_back();
    for (const char c : w.text) symbols.back().push_back(ids.at(std::string(1, c)));
  }
  std::map<std::pair<std::int32_t, std::int32_t>, bool> done;
  while (bpe.pieces.size() < pieces) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;
    for (std::size_t w = 0; w < words.size(); ++w)
      for (std::size_t i = 0; i + 1 < symbols[w].size(); ++i) counts[{symbols[w][i], symbols[w][i + 1]}] += words[w].count;
    std::pair<std::int32_t, std::int32_t> best;
    std::int64_t most = 1;
    for (const auto& [pair, n] : counts)
      if (n > most && !done[pair]) most = n, best = pair;
    if (most < 2) break;
    done[best] = true;
    const std::string text = bpe.pieces[static_cast<std::size_t>(best.first)] + bpe.pieces[static_cast<std::size_t>(best.second)];
    const auto [place, fresh] = ids.emplace(text, static_cast<std::int32_t>(bpe.pieces.size()));
    if (fresh) bpe.pieces.push_back(text);
    bpe.merges.push_back(best);
    for (auto& s : symbols)
      for (std::size_t i = 0; i + 1 < s.size(); ++i)
        if (s[i] == best.first && s[i + 1] == best.second) {
          s[i] = place->second;
          s.erase(s.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return bpe;
}

TEST(LearnBpe, MergesAreThoseOfTheDefinition) {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    const std::vector<WordCounter::Word> words = count(random_text(seed, 20000), 1, 1 << 20);
    const LearnedBpe slow = learn_slowly(words, 330), fast = learn_bpe(words, 330);
    EXPECT_EQ(fast.pieces, slow.pieces);
    EXPECT_EQ(fast.merges, slow.merges);
    EXPECT_GT(fast.merges.size(), 40u);
  }
}

TEST(LearnBpe, EndsWhenNoPairStandsTwice) {
  const LearnedBpe bpe = learn_bpe({{"abab", 1}, {"xy", 1}}, 10000);
  EXPECT_EQ(bpe.pieces.size(), 257u);
  EXPECT_EQ(bpe.pieces.back(), "ab");
  EXPECT_EQ(learn_bpe({}, 300).pieces.size(), 256u);
}

TEST(LearnBpe, MakesATokenizer) {
  const std::string text = random_text(5, 50000);
  const LearnedBpe bpe = learn_bpe(count(text, 2, 1 << 20), 399);
  for (const SplitRule rule : kRegexRules) {
    const Tokenizer t = Tokenizer::parse(byte_level_json(rule, bpe.pieces, bpe.merges, "<|endoftext|>"), "test");
    EXPECT_EQ(t.vocab_size(), static_cast<std::int64_t>(bpe.pieces.size()) + 1);
    EXPECT_EQ(t.end_of_text(), t.vocab_size() - 1);
    EXPECT_EQ(t.tables().model.split, rule);
    std::vector<std::int32_t> ids;
    t.encode(text, ids);
    std::string back;
    for (const std::int32_t id : ids) back += t.decode(id);
    EXPECT_EQ(back, text);
    EXPECT_LT(ids.size(), text.size() / 2);
  }
}

// Long words go through a heap and short ones through a search: both against the definition.
TEST(WordMerger, JoinsTheLeftmostOfTheLowestRank) {
  std::mt19937 random(4);
  std::vector<Merge> merges;
  for (std::int32_t id = 4; id < 60; ++id)
    merges.push_back({static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(id)),
                      static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(id)), id});
  merges.push_back({0, 0, 60});
  merges.push_back({60, 0, 61});
  const MergeTable table(merges);
  WordMerger merger;
  for (const std::size_t size : {0, 1, 2, 3, 17, 63, 64, 65, 66, 300, 1000}) {
    std::vector<std::int32_t> symbols(size), expected;
    for (std::int32_t& s : symbols) s = static_cast<std::int32_t>(random() % 4);
    expected = symbols;
    while (true) {
      std::size_t best = 0;
      std::uint32_t rank = MergeTable::kNone;
      for (std::size_t i = 0; i + 1 < expected.size(); ++i)
        if (const std::uint32_t r = table.find(expected[i], expected[i + 1]).rank; r < rank) rank = r, best = i;
      if (rank == MergeTable::kNone) break;
      expected[best] = table.find(expected[best], expected[best + 1]).id;
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    merger.merge(table, symbols);
    EXPECT_EQ(symbols, expected) << size;
  }
}

}  // namespace
}  // namespace flashgpt::testing
