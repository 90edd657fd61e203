// The arithmetic of the Hopper backward that does not need a GPU: which tiles meet which keys, in which order, and where things lie.
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "attention/sm90/backward_config.h"

namespace flashgpt::attention::sm90 {
namespace {

struct Lengths {
  int sq, sk;
};
constexpr Lengths kLengths[] = {{1, 1},     {1, 77},    {77, 1},    {64, 64},   {65, 63},   {128, 256}, {200, 333},
                                {333, 200}, {129, 511}, {511, 130}, {512, 512}, {513, 512}, {700, 65}};

bool visible(bool causal, int i, int j, const Lengths& n) { return i < n.sq && j < n.sk && (!causal || j <= i + n.sk - n.sq); }

TEST(Sm90Backward, TilesCoverEveryVisiblePairAndUnmaskedTilesAreWhollyVisible) {
  for (bool causal : {false, true})
    for (const Lengths n : kLengths)
      for (int rows : {64, 128, 256})
        for (int key = 0; key < n.sk; key += rows) {
          const int first = first_query_tile(causal, key, n.sq, n.sk), tiles = ceil_div(n.sq, kQueryRows);
          for (int m = 0; m < tiles; ++m) {
            const bool masked = tile_needs_mask(causal, key, rows, m * kQueryRows, n.sq, n.sk);
            bool any = false;
            for (int j = key; j < key + rows; ++j) {
              const int from = first_query_of(causal, j, n.sq, n.sk);
              for (int i = m * kQueryRows; i < smaller(n.sq, (m + 1) * kQueryRows); ++i) {
                const bool see = visible(causal, i, j, n);
                any |= see;
                ASSERT_EQ(see, i >= from) << i << " " << j << " sq " << n.sq << " sk " << n.sk;
                if (!masked) {
                  ASSERT_TRUE(see) << i << " " << j << " sq " << n.sq << " sk " << n.sk;
                }
              }
            }
            if (m < first) {
              EXPECT_FALSE(any) << "tile " << m << " is left out, sq " << n.sq << " sk " << n.sk;
            }
            if (any && m == first && causal) {
              EXPECT_TRUE(masked || key + rows - 1 <= m * kQueryRows + n.sk - n.sq);
            }
          }
        }
}

// The product dQ = dS K reads exactly tiles that the kernel over keys has written, and all that hold a visible pair.
TEST(Sm90Backward, ProductReadsWhatWasWritten) {
  for (bool causal : {false, true})
    for (const Lengths n : kLengths) {
      const int tiles = ceil_div(n.sq, kQueryRows), blocks = ceil_div(n.sk, 64);
      for (int m = 0; m < tiles + 1; ++m) {
        const int count = key_blocks_of_tile(causal, m, tiles, n.sq, n.sk);
        ASSERT_LE(count, blocks);
        if (m == tiles) {
          EXPECT_EQ(count, 0);
        }
        for (int b = 0; b < blocks && m < tiles; ++b) {
          const bool written = first_query_tile(causal, b * 64, n.sq, n.sk) <= m;
          if (b < count) {
            EXPECT_TRUE(written) << "tile " << m << " block " << b << " sq " << n.sq << " sk " << n.sk;
          }
          bool any = false;
          for (int i = m * kQueryRows; i < (m + 1) * kQueryRows && !any; ++i)
            for (int j = b * 64; j < b * 64 + 64 && !any; ++j) any = visible(causal, i, j, n);
          if (any) {
            EXPECT_LT(b, count);
          }
        }
      }
    }
}

TEST(Sm90Backward, WorkIsAPermutationAndLongBlocksComeFirstInASection) {
  for (int blocks : {1, 2, 7, 64})
    for (int heads : {1, 2, 5, 16})
      for (int section : {1, 2, 3, 100}) {
        std::set<std::pair<int, int>> seen;
        int before = -1, head_section = -1;
        for (int i = 0; i < blocks * heads; ++i) {
          const WorkItem w = backward_work(i, blocks, heads, section);
          ASSERT_TRUE(w.key_block >= 0 && w.key_block < blocks && w.head >= 0 && w.head < heads);
          EXPECT_TRUE(seen.insert({w.key_block, w.head}).second);
          if (w.head / section != head_section) before = -1;
          head_section = w.head / section;
          EXPECT_GE(w.key_block, before);
          before = w.key_block;
        }
      }
  EXPECT_EQ(backward_section(40ll << 20, 16384, 16384, 128, 1), 1);
  EXPECT_GT(backward_section(40ll << 20, 512, 512, 64, 1), 20);
  EXPECT_GE(backward_section(40ll << 20, 0, 0, 64, 1), 1);
}

TEST(Sm90Backward, FragmentOrderIsABijection) {
  for (int head_dim : {64, 128}) {
    std::vector<int> seen(kQueryRows * head_dim, 0);
    for (int piece = 0; piece < head_dim / 64; ++piece)
      for (int t = 0; t < 128; ++t)
        for (int e = 0; e < 32; ++e) {
          const FragmentPlace p = fragment_place(piece, t, e);
          ++seen[p.row * head_dim + p.column];
        }
    for (int count : seen) EXPECT_EQ(count, 1);
  }
}

TEST(Sm90Backward, SharedMemoryIsAlignedAndFits) {
  for (int head_dim : {64, 128}) {
    const BackwardLayout l = backward_layout(head_dim);
    for (int at : {l.k, l.v, l.q, l.dout, l.ds, l.dq}) EXPECT_EQ(at % 1024, 0);
    EXPECT_EQ(l.stats % 16, 0);
    EXPECT_EQ(l.barriers % 8, 0);
    EXPECT_LE(l.total, kSharedLimit);
  }
}

}  // namespace
}  // namespace flashgpt::attention::sm90
