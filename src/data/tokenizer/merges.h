// Byte-pair encoding: which pairs of ids join, in which order. Sennrich et al. (2016): while a word holds a pair of the table, join the
// leftmost of the pairs of the lowest rank.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace flashgpt {

struct Merge {
  std::int32_t left, right, id;  // the two become id; the rank is the place in the list
};

class MergeTable {
 public:
  // Of a pair that is there twice, the last counts. Ids are not negative.
  explicit MergeTable(const std::vector<Merge>& merges);

  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Found {
    std::uint32_t rank;  // kNone: they do not join
    std::int32_t id;
  };
  Found find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t k = key(left, right);
    for (std::size_t i = slot(k);; i = (i + 1) & mask_) {
      const Slot& s = slots_[i];
      if (s.key == k) return {s.rank, s.id};
      if (s.key == kFree) return {kNone, 0};
    }
  }
  std::size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    std::uint32_t rank = kNone;
    std::int32_t id = 0;
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot(std::uint64_t k) const { return static_cast<std::size_t>(k * 0x9E3779B97F4A7C15u >> 32) & mask_; }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

// Joins the symbols of one word, in place. It keeps its memory from word to word: one for each thread.
class WordMerger {
 public:
  // The symbols that are left; valid until the next call.
  void merge(const MergeTable& table, std::vector<std::int32_t>& symbols);

 private:
  void merge_short(const MergeTable& table, std::vector<std::int32_t>& symbols);
  void merge_long(const MergeTable& table, std::vector<std::int32_t>& symbols);

  struct Candidate {
    std::uint32_t rank, left, right;  // places of the two symbols
    std::int32_t id;
    bool operator>(const Candidate& o) const { return std::pair(rank, left) > std::pair(o.rank, o.left); }
  };
  std::vector<MergeTable::Found> pairs_;
  std::vector<Candidate> heap_;
  std::vector<std::uint32_t> before_, after_;
};

}  // namespace flashgpt
