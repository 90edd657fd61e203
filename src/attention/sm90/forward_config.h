// Attention forward on Hopper: variants, tiles, places in shared memory, order of work. Shared by host and kernels, all of it constexpr, so
// that the CPU can test it.
//
// A work item is a tile of queries (64 a warpgroup) of one head; it walks blocks of keys from the last that it sees down to the first.
// device: shared
#pragma once
#include "attention/sm90/backward_config.h"

namespace flashgpt::attention::sm90 {

// One variant of the kernel.
struct ForwardConfig {
  int head_dim = 128;  // 64, 96, 128, 192, 256
  int warpgroups = 3;  // that compute
  int keys = 80;       // of a block
  bool causal = false;
  bool half = false;    // fp16 instead of bf16
  bool varlen = false;  // sequences one after the other, as cu_seqlens say, instead of a batch of one length
  bool window = false;  // ForwardArgs::left and, with causal, right; causal then says that there is a limit on the right
  bool alibi = false, softcap = false;

  constexpr bool plain() const { return !window && !alibi && !softcap; }
};

// The head dim that carries d columns: those behind the last read as zero and are not written.
constexpr int forward_dim(int d) { return d <= 64 ? 64 : d <= 96 ? 96 : d <= 128 ? 128 : d <= 192 ? 192 : 256; }

// The tiles that measured best (docs/gpu-forward-log.md).
constexpr ForwardConfig forward_config(int head_dim, int queries, bool causal, bool half, bool varlen) {
  if (head_dim == 96) return {96, 3, 96, causal, half, varlen};
  if (head_dim == 192) return {192, 2, 96, causal, half, varlen};
  if (head_dim == 64) return {64, 4, 64, causal, half, varlen};
  if (head_dim == 256) return {256, 2, 64, causal, half, varlen};
  return {128, 3, queries <= 4096 || varlen ? 64 : 80, causal, half, varlen};
}

// With features the registers of three warpgroups do not suffice.
constexpr ForwardConfig with_features(ForwardConfig c, bool window, bool alibi, bool softcap) {
  c.window = window, c.alibi = alibi, c.softcap = softcap;
  if (!c.plain() && c.head_dim <= 128) c.warpgroups = 2, c.keys = 128;
  return c;
}

constexpr int kGroupRows = 64, kGroupThreads = 128;  // of a warpgroup: queries, threads

struct ForwardLayout {
  int q_bytes, kv_bytes;  // of one warpgroup's queries; of one block of K or V
  int stages;             // of K, and of V
  bool o_over_q;          // O leaves through the place of Q, since there is no other
  int q, o, k, v, barriers, total;
};
constexpr int kSharedMost = 232448;
constexpr ForwardLayout forward_layout(ForwardConfig c) {
  ForwardLayout l{};
  const int row_bytes = ceil_div(c.head_dim, 64) * 128;
  l.q_bytes = kGroupRows * row_bytes;
  l.kv_bytes = c.keys * row_bytes;
  const int all_q = c.warpgroups * l.q_bytes, rest = 1024 + 256;
  l.o_over_q = 2 * all_q + 4 * l.kv_bytes + rest > kSharedMost;
  l.stages = smaller(4, (kSharedMost - rest - (l.o_over_q ? 1 : 2) * all_q) / (2 * l.kv_bytes));
  l.o = l.o_over_q ? 0 : all_q;
  l.k = l.o + all_q;
  l.v = l.k + l.stages * l.kv_bytes;
  l.barriers = l.v + l.stages * l.kv_bytes;
  l.total = l.barriers + rest;
  return l;
}
static_assert(forward_layout({64, 4, 64}).total <= kSharedMost && forward_layout({128, 3, 80}).total <= kSharedMost &&
              forward_layout({128, 2, 128}).total <= kSharedMost && forward_layout({256, 2, 64}).total <= kSharedMost);
static_assert(forward_layout({256, 2, 64}).stages >= 2 && forward_layout({192, 2, 96}).stages >= 2);

// The last key that a query sees, below 0 for none; causal is bottom-right, and a window may reach `right` keys further. Queries behind the
// last one (tails of tiles) count as the last.
constexpr int last_key_of(bool causal, int query, int sq, int sk, int right = 0) {
  return causal ? smaller(query + sk - sq + right, sk - 1) : sk - 1;
}
constexpr int first_key_of(int left, int query, int sq, int sk) { return larger(0, smaller(query, sq - 1) + sk - sq - left); }
// Blocks of keys that queries up to `query` walk.
constexpr int blocks_until(bool causal, int query, int sq, int sk, int keys, int right = 0) {
  return ceil_div(larger(0, last_key_of(causal, smaller(query, sq - 1), sq, sk, right) + 1), keys);
}
// The first so many blocks lie wholly before the last key of the tile's first query: no mask, and the row has seen a key of a later block.
constexpr int plain_blocks(bool causal, int first_query, int sq, int sk, int keys, int right = 0) {
  return larger(0, last_key_of(causal, first_query, sq, sk, right)) / keys;
}
// With a window, blocks before this one may lie before the first key of a query of the tile, whose last one is given.
constexpr int plain_from(int left, int last_query, int sq, int sk, int keys) {
  return ceil_div(first_key_of(left, last_query, sq, sk), keys);
}

// Order of the work items. Full: head after head, so that blocks of threads that run together share K and V in the L2 cache. Causal: heads
// in sections, in a section the tiles with the most keys first. A block of threads takes every grid-th item, in turns from the front and
// from the back of a round, which evens out the sums.
struct ForwardItem {
  int tile, head;  // head: of all heads of all sequences
};
constexpr ForwardItem forward_item(int index, int tiles, int heads, int section, bool causal) {
  if (!causal) return {index % tiles, index / tiles};
  const int done = index / (section * tiles) * section, width = smaller(section, heads - done), inside = index - done * tiles;
  return {tiles - 1 - inside / width, done + inside % width};
}
constexpr int forward_index(int round, int block, int grid) { return round * grid + (round % 2 ? grid - 1 - block : block); }

// Varlen: rows behind a sequence's end belong to the next one. Maps of V and O have two more dimensions whose strides cancel, so that the
// row coordinate runs out of the array exactly at the sequence's end: row r of a sequence of n rows that begins at f is (kRagged - n + r,
// .., kRagged, f + n) with strides (s, .., 2^34 - s, s) bytes, and 2^30 (2^34 - s) is -2^30 s in 64 bits.
constexpr int kRagged = 1 << 30;

struct ForwardArgs {
  float* lse;                        // natural logarithm, or null; rows contiguous
  long long lse_sequence, lse_head;  // strides, elements
  const int *cu_q, *cu_k;            // varlen: [sequences + 1]
  const int* list;                   // varlen: [0] their number, then pairs (sequence, first query) of the tiles
  int sq, sk;
  int heads, kv_heads;
  int tiles, items;  // tiles of a head; all work
  int section;
  float scale_log2;  // scale * log2(e); with a softcap: softcap * log2(e)
  // Of variants.
  float into_tanh;      // scale / softcap
  int left, right;      // of the window
  const float* slopes;  // of ALiBi, or null: those of the paper
  long long slopes_sequence;
  int slopes_first, head_offset, total_heads;
};

}  // namespace flashgpt::attention::sm90
