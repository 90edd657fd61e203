#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "allocations.h"
#include "data/permutation.h"
#include "data/random_stream.h"
#include "flashgpt/error.h"

namespace flashgpt::testing {
namespace {

struct Rows {
  std::vector<std::int32_t> tokens, targets, positions, cu_seqlens;
  Rows(std::int64_t rows, std::int64_t context_len) {
    const auto n = static_cast<std::size_t>(rows * context_len);
    tokens.assign(n, -7), targets.assign(n, -7), positions.assign(n, -7), cu_seqlens.assign(n + 1, -7);
  }
  RowBuffers buffers() {
    return {.tokens = tokens.data(), .targets = targets.data(), .positions = positions.data(), .cu_seqlens = cu_seqlens.data()};
  }
  bool operator==(const Rows&) const = default;
};

// What loader.h says of any rows: bounds and positions restart at rows and after end-of-text, targets are ignored at end-of-text alone.
void check_rows(Rows& rows, std::int64_t context_len, const RowCounts& counts) {
  const auto n = static_cast<std::int64_t>(rows.tokens.size());
  std::vector<std::int32_t> bounds;
  std::int64_t targets = 0, bytes = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto u = static_cast<std::size_t>(i);
    const bool starts = i % context_len == 0 || rows.tokens[u - 1] == kEnd;
    if (starts) bounds.push_back(static_cast<std::int32_t>(i));
    ASSERT_EQ(rows.positions[u], i - bounds.back());
    ASSERT_EQ(rows.targets[u] == kIgnoredTarget, rows.tokens[u] == kEnd);
    if (rows.tokens[u] == kEnd) continue;
    ++targets;
    bytes += rows.targets[u] != kEnd;
    // In a row that ends in padding the last token's target is the stream's next, which is not in the row.
    const auto row_end = rows.tokens.begin() + (i / context_len + 1) * context_len;
    const bool last = std::all_of(rows.tokens.begin() + i + 1, row_end, [](std::int32_t t) { return t == kEnd; });
    if (!last) {
      ASSERT_EQ(rows.targets[u], rows.tokens[u + 1]);
    }
  }
  EXPECT_EQ(counts.sequences, static_cast<std::int64_t>(bounds.size()));
  bounds.resize(static_cast<std::size_t>(n) + 1, static_cast<std::int32_t>(n));
  EXPECT_EQ(rows.cu_seqlens, bounds);
  EXPECT_EQ(counts.targets, targets);
  EXPECT_EQ(counts.text_bytes, bytes);
}

// Pairs (token, target) of the stream; end-of-text has none.
std::multiset<std::pair<std::int32_t, std::int32_t>> pairs_of(const std::vector<std::int32_t>& tokens) {
  std::multiset<std::pair<std::int32_t, std::int32_t>> pairs;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    if (tokens[i] != kEnd) pairs.insert({tokens[i], tokens[i + 1]});
  return pairs;
}

TEST(Permutation, IsOneAndDependsOnSeedAndStream) {
  for (std::int64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097}) {
    std::set<std::int64_t> seen;
    const Permutation p(n, 11, 3);
    for (std::int64_t i = 0; i < n; ++i) seen.insert(p(i));
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), n);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
  const std::int64_t n = 1000;
  int same_seed = 0, same_stream = 0, fixed = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    same_stream += Permutation(n, 1, 0)(i) == Permutation(n, 2, 0)(i);
    same_seed += Permutation(n, 1, 0)(i) == Permutation(n, 1, 1)(i);
    fixed += Permutation(n, 1, 0)(i) == i;
  }
  EXPECT_LT(same_seed, 12);  // 1 is expected
  EXPECT_LT(same_stream, 12);
  EXPECT_LT(fixed, 12);
  const std::int64_t huge = (std::int64_t{1} << 40) + 12345;  // more rows than 32 bits hold
  EXPECT_LT(Permutation(huge, 5, 0)(huge - 1), huge);
  EXPECT_THROW(Permutation(0, 1, 0), Error);
}

// Each position of a small domain must be hit about equally often over streams: a bias here would show some text more often early on.
TEST(Permutation, FirstElementIsUniform) {
  constexpr int kElements = 10, kStreams = 20000;
  std::vector<int> hits(kElements, 0);
  for (std::uint64_t s = 0; s < kStreams; ++s) ++hits[static_cast<std::size_t>(Permutation(kElements, 42, s)(0))];
  double chi2 = 0;
  for (int h : hits) chi2 += (h - kStreams / kElements) * (h - kStreams / kElements) / (1.0 * kStreams / kElements);
  EXPECT_LT(chi2, 40);  // 9 degrees of freedom: above by chance once in 10^5
}

TEST(TrainLoader, EachEpochHasEachTokenOnce) {
  for (std::int64_t context_len : {1, 2, 7, 16, 64, 1000}) {
    RandomStream text(3, 40, 30, 3);
    const TrainLoader loader(text.stream, context_len, 9);
    EXPECT_EQ(loader.rows_per_epoch(), (text.stream.size() + context_len - 1) / context_len);
    auto sorted = text.all;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::vector<std::int32_t>> epochs;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::int64_t rows = loader.rows_per_epoch();
      Rows out(rows, context_len);
      const RowCounts counts = loader.fill(epoch * rows, rows, out.buffers());
      check_rows(out, context_len, counts);
      EXPECT_EQ(counts.targets, text.stream.size() - 40);  // all but end-of-text

      std::multiset<std::pair<std::int32_t, std::int32_t>> pairs;
      for (std::size_t i = 0; i < out.tokens.size(); ++i)
        if (out.targets[i] >= 0) pairs.insert({out.tokens[i], out.targets[i]});
      EXPECT_EQ(pairs, pairs_of(text.all));

      epochs.push_back(out.tokens);
      auto tokens = out.tokens;
      std::sort(tokens.begin(), tokens.end());
      // Padding is end-of-text: the largest id, so at the end.
      const auto padding = tokens.end() - (rows * context_len - text.stream.size());
      EXPECT_TRUE(std::all_of(padding, tokens.end(), [](std::int32_t t) { return t == kEnd; }));
      tokens.erase(padding, tokens.end());
      EXPECT_EQ(tokens, sorted);
    }
    if (context_len < 1000) {
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_NE(epochs[1], epochs[2]);
    }
  }
}

TEST(TrainLoader, SeekEqualsReadingOnAndAnySplitIsTheSame) {
  constexpr std::int64_t kContext = 13, kRows = 64;
  RandomStream text(4, 25, 40, 2);
  const TrainLoader loader(text.stream, kContext, 5);
  ASSERT_GT(kRows, 1.5 * static_cast<double>(loader.rows_per_epoch()));  // goes over the end of an epoch
  Rows all(kRows, kContext);
  loader.fill(0, kRows, all.buffers());
  for (std::int64_t r = 0; r < kRows; ++r) {
    Rows one(1, kContext);
    const RowCounts counts = TrainLoader(text.stream, kContext, 5).fill(r, 1, one.buffers());
    check_rows(one, kContext, counts);
    const auto begin = static_cast<std::ptrdiff_t>(r * kContext);
    EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), all.tokens.begin() + begin));
    EXPECT_TRUE(std::equal(one.targets.begin(), one.targets.end(), all.targets.begin() + begin));
    EXPECT_TRUE(std::equal(one.positions.begin(), one.positions.end(), all.positions.begin() + begin));
  }

  RowCounts whole;
  std::vector<std::int32_t> reference;
  for (std::int64_t micro : {64, 32, 16, 4, 1}) {
    StepRows step(kRows, micro, kContext);
    const RowCounts total = step.fill(loader, 0);
    if (micro == 64) whole = total;
    EXPECT_EQ(total.targets, whole.targets);
    EXPECT_EQ(total.text_bytes, whole.text_bytes);
    EXPECT_EQ(total.sequences, whole.sequences);
    std::vector<std::int32_t> tokens, targets;
    std::int64_t micro_targets = 0;
    for (std::int64_t m = 0; m < step.micro_batches(); ++m) {
      const RowBuffers b = step.micro(m);
      Rows copy(micro, kContext);
      const std::int64_t n = micro * kContext;
      std::copy_n(b.tokens, n, copy.tokens.begin());
      std::copy_n(b.targets, n, copy.targets.begin());
      std::copy_n(b.positions, n, copy.positions.begin());
      std::copy_n(b.cu_seqlens, n + 1, copy.cu_seqlens.begin());
      check_rows(copy, kContext, step.counts(m));
      tokens.insert(tokens.end(), copy.tokens.begin(), copy.tokens.end());
      micro_targets += step.counts(m).targets;
    }
    EXPECT_EQ(tokens, all.tokens);
    EXPECT_EQ(micro_targets, total.targets);
  }
}

TEST(TrainLoader, FillingAllocatesNothing) {
  RandomStream text(4, 50, 40, 3);
  const TrainLoader loader(text.stream, 16, 1);
  const ValidationLoader val(text.stream, 16);
  StepRows step(8, 2, 16);
  const std::int64_t before = allocations();
  for (std::int64_t p = 0; p < 200; p += 8) step.fill(loader, p);
  step.fill(val, 0);
  EXPECT_EQ(allocations(), before);
  EXPECT_GT(before, 0);
}

TEST(TrainLoader, SeedsDiffer) {
  RandomStream text(4, 50, 40);
  Rows a(8, 16), b(8, 16), again(8, 16);
  TrainLoader(text.stream, 16, 1).fill(0, 8, a.buffers());
  TrainLoader(text.stream, 16, 2).fill(0, 8, b.buffers());
  TrainLoader(text.stream, 16, 1).fill(0, 8, again.buffers());
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a == again);
}

TEST(ValidationLoader, EachTokenIsScoredOnceInOrder) {
  for (std::int64_t context_len : {1, 5, 32, 5000}) {
    RandomStream text(6, 30, 25, 2);
    const ValidationLoader loader(text.stream, context_len);
    EXPECT_EQ(loader.rows(), (text.stream.size() + context_len - 1) / context_len);
    const std::int64_t rows = loader.rows() + 2;  // past the end is padding
    Rows out(rows, context_len);
    const RowCounts counts = loader.fill(0, rows, out.buffers());
    check_rows(out, context_len, counts);
    EXPECT_EQ(counts.targets, text.stream.size() - 30);
    EXPECT_EQ(counts.text_bytes, text.stream.size() - 30 - 30);  // not the first byte of a document, not end-of-text
    const auto n = static_cast<std::ptrdiff_t>(text.all.size());
    EXPECT_TRUE(std::equal(text.all.begin(), text.all.end(), out.tokens.begin()));
    EXPECT_TRUE(std::all_of(out.tokens.begin() + n, out.tokens.end(), [](std::int32_t t) { return t == kEnd; }));
    for (std::size_t i = 0; i + 1 < text.all.size(); ++i) EXPECT_EQ(out.targets[i], text.all[i] == kEnd ? -1 : text.all[i + 1]);
  }
}

TEST(TokenStream, PiecesOfBothWidthsReadAsOne) {
  const std::vector<std::uint16_t> narrow{1, 2, 9};
  const std::vector<std::uint32_t> wide{70000, 9};
  std::vector<std::int32_t> token_bytes(70001, 1);
  const TokenStream s({{narrow.data(), 3, 2}, {nullptr, 0, 2}, {wide.data(), 2, 4}}, token_bytes, 9);
  EXPECT_EQ(s.size(), 5);
  std::vector<std::int32_t> out(12);
  s.copy(1, 12, out.data());
  EXPECT_EQ(out, (std::vector<std::int32_t>{2, 9, 70000, 9, 1, 2, 9, 70000, 9, 1, 2, 9}));
}

TEST(TokenStream, RefusesWhatIsNoStream) {
  const std::vector<std::uint16_t> open{1, 2};
  EXPECT_THROW(TokenStream({}, {1, 1, 0}, 2), Error);
  EXPECT_THROW(TokenStream({{open.data(), 2, 2}}, {1, 1, 1, 0}, 3), Error);  // no end-of-text at the end
  EXPECT_THROW(TokenStream({{open.data(), 2, 3}}, {1, 1, 0}, 2), Error);
  EXPECT_THROW(TokenStream({{open.data(), 2, 2}}, {1, 1, 0}, 3), Error);  // end-of-text outside the vocabulary
}

TEST(Loader, RefusesBadArguments) {
  RandomStream text(1, 3, 5);
  EXPECT_THROW(TrainLoader(text.stream, 0, 1), Error);
  EXPECT_THROW(ValidationLoader(text.stream, -1), Error);
  Rows out(2, 4);
  const TrainLoader loader(text.stream, 4, 1);
  EXPECT_THROW(loader.fill(-1, 1, out.buffers()), Error);
  EXPECT_THROW(loader.fill(0, 0, out.buffers()), Error);
  EXPECT_THROW(loader.fill(0, std::int64_t{1} << 30, out.buffers()), Error);  // 2^32 tokens do not fit cu_seqlens
  EXPECT_THROW(StepRows(5, 2, 4), Error);
  EXPECT_THROW(StepRows(4, 0, 4), Error);
  StepRows step(2, 1, 8);
  EXPECT_THROW(step.fill(loader, 0), Error);  // another context_len
}

}  // namespace
}  // namespace flashgpt::testing
