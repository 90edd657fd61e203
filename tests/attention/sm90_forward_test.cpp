// What the Hopper forward decides in constexpr functions: the order of work, which blocks need a mask, places in shared memory. And its
// kernels as machine code, no GPU needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "attention/sm90/forward.h"

namespace flashgpt::attention::sm90 {
namespace {

TEST(Sm90Forward, EveryTileIsDoneOnceTheLongestFirst) {
  for (bool causal : {false, true})
    for (auto [tiles, heads, section] : {std::tuple{1, 1, 1}, {7, 5, 2}, {86, 16, 16}, {22, 64, 16}, {3, 300, 32}, {5, 9, 9}}) {
      std::vector<int> seen(static_cast<std::size_t>(tiles * heads));
      ForwardItem before{tiles, 0};
      for (int index = 0; index < tiles * heads; ++index) {
        const ForwardItem item = forward_item(index, tiles, heads, section, causal);
        ASSERT_TRUE(item.tile >= 0 && item.tile < tiles && item.head >= 0 && item.head < heads);
        ++seen[static_cast<std::size_t>(item.head * tiles + item.tile)];
        EXPECT_TRUE(!causal || item.head / section != before.head / section || item.tile <= before.tile);
        before = item;
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), tiles * heads) << tiles << " " << heads;
    }
}

TEST(Sm90Forward, BlocksWithoutAMaskHaveNothingToHide) {
  for (bool causal : {false, true})
    for (int keys : {64, 80, 128})
      for (auto [sq, sk] : {std::pair{1, 1}, {200, 333}, {333, 200}, {1000, 1000}, {192, 80}, {77, 1}, {640, 640}})
        for (int first = 0; first < sq; first += 192) {
          const int plain = plain_blocks(causal, first, sq, sk, keys), blocks = blocks_until(causal, first, sq, sk, keys);
          EXPECT_LE(blocks_until(causal, first + 191, sq, sk, keys), (sk + keys - 1) / keys);
          if (last_key_of(causal, first, sq, sk) < 0) {
            EXPECT_EQ(plain, 0);
            continue;
          }
          EXPECT_LE(plain * keys - 1, last_key_of(causal, first, sq, sk));  // wholly visible to the first query
          EXPECT_LT(plain, blocks);                                         // which has seen a later block before
        }
}

// Work of the blocks of threads, the mean over the most, for the shapes that are measured.
TEST(Sm90Forward, WorkIsEven) {
  const int grid = 132;
  for (int d : {64, 128, 256})
    for (int length : {512, 1024, 2048, 4096, 8192, 16384}) {
      const ForwardConfig c = forward_config(d, length, true, false, false);
      const int rows = c.warpgroups * kGroupRows, tiles = ceil_div(length, rows), heads = 2048 / d * (16384 / length);
      const int section = forward_section(tiles, heads, 1, length, length, c, grid);
      std::vector<int> work(grid);
      for (int block = 0; block < grid; ++block)
        for (int round = 0; round * grid < tiles * heads; ++round)
          if (const int i = forward_index(round, block, grid); i < tiles * heads)
            work[static_cast<std::size_t>(block)] +=
                2 + blocks_until(true, (forward_item(i, tiles, heads, section, true).tile + 1) * rows - 1, length, length, c.keys);
      const double mean = std::accumulate(work.begin(), work.end(), 0.0) / grid;
      EXPECT_GE(mean / *std::max_element(work.begin(), work.end()), 0.955) << d << " " << length << " section " << section;
      EXPECT_LE(section, 40);
    }
  EXPECT_EQ(forward_section(22, 64, 8, 4096, 4096, forward_config(128, 4096, true, false, false), grid) % 8, 0);
}

TEST(Sm90Forward, BlocksWithoutAMaskLieInEveryWindow) {
  for (int keys : {64, 128})
    for (auto [left, right] : {std::pair{0, 0}, {200, 0}, {130, 70}, {1 << 29, 9}, {300, 1000}})
      for (auto [sq, sk] : {std::pair{1, 1}, {200, 333}, {333, 200}, {1000, 1000}, {700, 130}})
        for (int first = 0; first < sq; first += 128) {
          const int last = std::min(first + 127, sq - 1), low = plain_from(left, first + 127, sq, sk, keys);
          const int plain = plain_blocks(true, first, sq, sk, keys, right), blocks = blocks_until(true, first + 127, sq, sk, keys, right);
          for (int b = 0; b < (sk + keys - 1) / keys; ++b) {
            bool any = false, all = (b + 1) * keys <= sk;
            for (int i = first; i <= last; ++i)
              for (int j = b * keys; j < std::min(sk, (b + 1) * keys); ++j) {
                const int distance = j - (i + sk - sq);
                const bool seen = distance <= right && -distance <= left;
                any |= seen;
                all &= seen;
              }
            EXPECT_TRUE(!any || (b >= first_key_of(left, first, sq, sk) / keys && b < blocks)) << b << " " << sq << " " << sk;
            EXPECT_TRUE(b < low || b >= plain || all) << b << " " << sq << " " << sk;
          }
        }
}

TEST(Sm90Forward, NoSpillsAndNothingSerialised) {
  for (int d : {64, 128, 256})
    for (int length : {4096, 16384})
      for (bool causal : {false, true})
        for (bool varlen : {false, true}) {
          if (length == 16384 && (d != 128 || varlen)) continue;  // the same kernel as that of shorter ones
          const Rows rows{nullptr, 1, length, 1, d, {length * d, d, d}};
          ForwardCall call{.q = rows, .k = rows, .v = rows, .o = rows};
          call.causal = causal;
          call.dtype = varlen ? Dtype::kF16 : Dtype::kBF16;
          int list = 0;
          if (varlen) call.list = &list;
          const cuda::KernelKey key = forward_kernel(call);
          const cuda::Compiled c = cuda::compile_cached(key);
          EXPECT_LE(c.spill_bytes, 32) << key.expression;
          EXPECT_EQ(cuda::serialisation_notes(c.log), "") << key.expression;
        }
}

TEST(Sm90Forward, FeaturesDoNotSpill) {
  for (auto [d, window, alibi, softcap] : {std::tuple{128, 512, false, 0.0f},
                                           {128, -1, true, 0.0f},
                                           {128, -1, false, 30.0f},
                                           {192, -1, false, 0.0f},
                                           {64, 512, true, 30.0f},
                                           {256, 512, true, 30.0f}}) {
    const Rows rows{nullptr, 1, 4096, 1, d, {4096 * d, d, d}};
    ForwardCall call{.q = rows, .k = rows, .v = rows, .o = rows};
    call.causal = true;
    call.window_left = window;
    call.alibi = alibi;
    call.softcap = softcap;
    const cuda::KernelKey key = forward_kernel(call);
    const cuda::Compiled c = cuda::compile_cached(key);
    EXPECT_LE(c.spill_bytes, d == 256 ? 8 : 0) << key.expression;  // outside the loops
    EXPECT_EQ(cuda::serialisation_notes(c.log), "") << key.expression;
  }
}

}  // namespace
}  // namespace flashgpt::attention::sm90
