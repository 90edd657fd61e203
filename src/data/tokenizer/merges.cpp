#include "data/tokenizer/merges.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace flashgpt {
namespace {

constexpr std::size_t kShort = 64;  // symbols; up to here searching all pairs beats a heap
constexpr std::uint32_t kEnd = 0xFFFFFFFF;
constexpr std::int32_t kGone = -1;

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : slots_(std::bit_ceil(std::max<std::size_t>(16, 2 * merges.size()))), mask_(slots_.size() - 1) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    const std::uint64_t k = key(m.left, m.right);
    std::size_t i = slot(k);
    while (slots_[i].key != kFree && slots_[i].key != k) i = (i + 1) & mask_;
    slots_[i] = {.key = k, .rank = static_cast<std::uint32_t>(rank), .id = m.id};
  }
}

void WordMerger::merge(const MergeTable& table, std::vector<std::int32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort)
    merge_short(table, symbols);
  else
    merge_long(table, symbols);
}

void WordMerger::merge_short(const MergeTable& table, std::vector<std::int32_t>& symbols) {
  std::size_t n = symbols.size();
  std::int32_t* const s = symbols.data();
  pairs_.resize(kShort);
  MergeTable::Found* const p = pairs_.data();
  for (std::size_t i = 0; i + 1 < n; ++i) p[i] = table.find(s[i], s[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (p[i].rank < p[best].rank) best = i;
    if (p[best].rank == MergeTable::kNone) break;
    s[best] = p[best].id;
    std::copy(s + best + 2, s + n, s + best + 1);
    if (best + 2 < n) std::copy(p + best + 2, p + n - 1, p + best + 1);
    --n;
    if (best > 0) p[best - 1] = table.find(s[best - 1], s[best]);
    if (best + 1 < n) p[best] = table.find(s[best], s[best + 1]);
  }
  symbols.resize(n);
}

// Symbols are a linked list; pairs that may join wait in a heap, and one whose symbols changed meanwhile is passed over.
void WordMerger::merge_long(const MergeTable& table, std::vector<std::int32_t>& symbols) {
  const auto n = static_cast<std::uint32_t>(symbols.size());
  before_.resize(n);
  after_.resize(n);
  heap_.clear();
  const auto push = [&](std::uint32_t left, std::uint32_t right) {
    const MergeTable::Found f = table.find(symbols[left], symbols[right]);
    if (f.rank == MergeTable::kNone) return;
    heap_.push_back({.rank = f.rank, .left = left, .right = right, .id = f.id});
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    before_[i] = i == 0 ? kEnd : i - 1;
    after_[i] = i + 1 == n ? kEnd : i + 1;
    if (i + 1 < n) push(i, i + 1);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  const auto push_one = [&](std::uint32_t left, std::uint32_t right) {
    const std::size_t size = heap_.size();
    push(left, right);
    if (heap_.size() > size) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate c = heap_.back();
    heap_.pop_back();
    if (symbols[c.left] == kGone || after_[c.left] != c.right) continue;
    // Both are there and neighbours, but each may have grown.
    const MergeTable::Found f = table.find(symbols[c.left], symbols[c.right]);
    if (f.rank != c.rank) continue;
    symbols[c.left] = c.id;
    symbols[c.right] = kGone;
    after_[c.left] = after_[c.right];
    if (after_[c.left] != kEnd) {
      before_[after_[c.left]] = c.left;
      push_one(c.left, after_[c.left]);
    }
    if (before_[c.left] != kEnd) push_one(before_[c.left], c.left);
  }
  std::erase(symbols, kGone);
}

}  // namespace flashgpt
