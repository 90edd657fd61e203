// Lists of blocks: made from masks and patterns, turned, checked.
#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

AttentionSpec spec_of_blocks(Index q, Index k, Index block_q, Index block_k, bool causal) {
  AttentionSpec s = dense(1, q, k, 1, 1, 4, causal);
  s.block_mask = true, s.block_q = block_q, s.block_k = block_k;
  return s;
}

TEST(Blocks, OfAMaskAgreeWithVisible) {
  for (const auto& [q, k] : {std::pair{17, 17}, {5, 23}, {23, 5}, {1, 9}})
    for (const bool causal : {false, true})
      for (const Index left : {Index{-1}, Index{0}, Index{6}}) {
        AttentionSpec s = spec_of_blocks(q, k, 4, 5, causal);
        s.window_left = left;
        OwnedBlocks o = blocks_of_mask(s, q, k);
        const BlockLists lists = o.lists();
        const BlockView view = block_view(lists, s);
        check_blocks(lists, s);
        const Mask mask{left, causal ? 0 : -1};
        for (Index i = 0; i < q; ++i)
          for (Index j = 0; j < k; ++j) {
            const Seen seen = view.seen(0, 0, i / 4, j / 5);
            const bool want = visible(mask, i, j, q, k);
            EXPECT_EQ(seen == Seen::kFull || (seen == Seen::kPartial && want), want);
          }
      }
}

TEST(Blocks, PatternIsLocalGlobalAndStrided) {
  const AttentionSpec s = spec_of_blocks(80, 80, 8, 8, true);
  OwnedBlocks o = sparse_blocks(s, 80, 80, {.local = 2, .global = 1, .stride = 4});
  const BlockLists lists = o.lists();
  const BlockView view = block_view(lists, s);
  for (Index r = 0; r < 10; ++r)
    for (Index c = 0; c < 10; ++c) {
      const bool want = c <= r && (c >= r - 1 || c == 0 || c % 4 == 3);
      EXPECT_EQ(view.seen(0, 0, r, c), !want ? Seen::kNone : c == r ? Seen::kPartial : Seen::kFull) << r << " " << c;
    }
  const AttentionSpec both = spec_of_blocks(40, 40, 8, 8, false);
  OwnedBlocks symmetric = sparse_blocks(both, 40, 40, {.local = 3});
  const BlockLists lists_both = symmetric.lists();
  const BlockView view_both = block_view(lists_both, both);
  for (Index r = 0; r < 5; ++r)
    for (Index c = 0; c < 5; ++c) EXPECT_EQ(view_both.seen(0, 0, r, c), std::abs(r - c) <= 1 ? Seen::kFull : Seen::kNone);
}

TEST(Blocks, TransposedTwiceIsTheSame) {
  std::vector<Seen> seen;
  for (Index n = 0; n < 2 * 3 * 4 * 5; ++n) seen.push_back(static_cast<Seen>(n * 5 / 2 % 3));
  const OwnedBlocks a = make_blocks(2, 3, 4, 5, seen), t = transposed(a), b = transposed(t);
  EXPECT_EQ(t.rows, 5);
  EXPECT_EQ(t.columns, 4);
  EXPECT_NE(a.full_index, t.full_index);
  EXPECT_EQ(a.full_count, b.full_count);
  EXPECT_EQ(a.full_index, b.full_index);
  EXPECT_EQ(a.partial_count, b.partial_count);
  EXPECT_EQ(a.partial_index, b.partial_index);
}

TEST(Blocks, FaultsOfLists) {
  const AttentionSpec s = spec_of_blocks(8, 12, 4, 4, false);
  auto message = [&](OwnedBlocks o) -> std::string {
    try {
      check_blocks(o.lists(), s);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const OwnedBlocks good = make_blocks(1, 1, 2, 3, {Seen::kFull, Seen::kPartial, Seen::kNone, Seen::kFull, Seen::kFull, Seen::kNone});
  EXPECT_EQ(message(good), "");
  OwnedBlocks o = good;
  o.full_count[1] = 4;
  EXPECT_EQ(message(o), "attention: blocks.full_count[1] = 4, expected 0 to 3");
  o = good;
  o.full_index[4] = 3;
  EXPECT_EQ(message(o), "attention: blocks.full_index[1][1] = 3, expected a block above 0 and below 3");
  o = good;
  o.full_index[4] = 0;
  EXPECT_EQ(message(o), "attention: blocks.full_index[1][1] = 0, expected a block above 0 and below 3");
  o = good;
  o.partial_index[0] = -1;
  EXPECT_NE(message(o).find("blocks.partial_index[0][0] = -1"), std::string::npos);
  o = good;
  o.partial_index[0] = 0;
  EXPECT_NE(message(o).find("block 0 of row 0 of head 0 of sequence 0 is in blocks.full_index and in blocks.partial_index"),
            std::string::npos)
      << message(o);
}

}  // namespace
}  // namespace flashgpt::attention::testing
