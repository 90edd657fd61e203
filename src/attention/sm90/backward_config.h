// Attention backward on Hopper: shapes of tiles, places in shared memory, order of work. Shared by host and kernels, all of it constexpr,
// so that the CPU can test it.
//
// A work item is a block of keys of one key/value head; it walks the tiles of kQueryRows queries of every query head of its group.
// device: shared
#pragma once

namespace flashgpt::attention::sm90 {

// One variant of the kernels.
struct BackwardConfig {
  int head_dim = 128;  // 64, 128, 256
  bool causal = false;
  bool half = false;  // fp16 instead of bf16
};

constexpr int kQueryRows = 64;  // of a tile: the depth of dK += dS^T Q and the rows of one dQ product
// Statistics of a tile of queries in memory, floats: 64 times lse * log2(e), then 64 times -delta (dP starts from it). +infinity as lse
// makes P = 0: rows that see no key, rows past the end.
constexpr int kStatsLse = kQueryRows, kStats = 2 * kQueryRows;
// dQ is summed in fp32 in "fragment order": a tile is head_dim / 64 pieces of 64 x 64, a piece is [8][128 threads][4].
constexpr int kPiece = 64 * 64;

// Where element `e` of thread `t` of piece `piece` (e = 4 j + i, stored at (j * 128 + t) * 4 + i) belongs.
struct FragmentPlace {
  int row, column;
};
constexpr FragmentPlace fragment_place(int piece, int t, int e) {
  return {t / 32 * 16 + t % 32 / 4 + (e & 2) * 4, piece * 64 + e / 4 * 8 + t % 4 * 2 + (e & 1)};
}

constexpr int backward_key_rows(int head_dim) { return head_dim == 64 ? 256 : head_dim == 128 ? 128 : 64; }

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Which tiles of queries a block of keys [first_key, first_key + rows) meets. Causal is bottom-right: query i sees key j when
// j <= i + sk - sq.
constexpr int first_query_tile(bool causal, int first_key, int sq, int sk) {
  return causal ? larger(0, first_key + sq - sk) / kQueryRows : 0;
}
// Whether some pair of the tile may be invisible (then the kernel compares every pair).
constexpr bool tile_needs_mask(bool causal, int first_key, int key_rows, int first_query, int sq, int sk) {
  return first_key + key_rows > sk || (causal && first_key + key_rows - 1 > first_query + sk - sq);
}
// The first query that sees the key: no query does when the key is past the end.
constexpr int kNever = 1 << 30;
constexpr int first_query_of(bool causal, int key, int sq, int sk) { return key >= sk ? kNever : causal ? key + sq - sk : -kNever; }

// Order of the work items: heads in sections that fit the L2 cache together, inside a section the first blocks of keys first (causal: those
// have the most queries), neighbours in different heads.
struct WorkItem {
  int key_block, head;  // head: of all key/value heads of all sequences
};
constexpr WorkItem backward_work(int index, int key_blocks, int heads, int section) {
  const int done = index / (section * key_blocks) * section, width = smaller(section, heads - done), inside = index - done * key_blocks;
  return {inside / width, done + inside % width};
}
constexpr int backward_section(long long l2_bytes, int sq, int sk, int head_dim, int group) {
  const long long head = static_cast<long long>(head_dim) * (static_cast<long long>(group) * sq * 8 + static_cast<long long>(sk) * 4);
  return head >= l2_bytes ? 1 : static_cast<int>(l2_bytes / (head > 0 ? head : 1));
}

// What every kernel of the backward reads (most tensors come as tensor maps). "All heads" are those of all sequences: batch * heads.
struct BackwardArgs {
  const float* stats;  // [all heads][query tiles][kStats]
  float* dq_sum;       // head dims 64, 128: [all heads][query tiles][head_dim / 64][kPiece], zero at the start
  unsigned short*
      ds;  // head dim 256: dS^T of the query heads of one launch [heads][key blocks][query tiles][64 keys][64 queries], swizzled
  int sq, sk;
  int heads, kv_heads;
  int query_tiles, key_blocks;
  int first_kv_head, all_kv_heads;  // this launch works on key/value heads [first, first + all) of all
  int section;
  float scale, scale_log2;
};

// The kernels before and after, which go through rows. Strides in elements.
struct RowStrides {
  long long sequence, row, head;
};
struct BackwardRowArgs {
  const unsigned short *o, *dout;
  const float* lse;       // [all heads][sq], natural logarithm
  float *stats, *dq_sum;  // dq_sum null: not wanted
  unsigned short* dq;
  RowStrides o_strides, dout_strides, dq_strides;
  int sq, heads, query_tiles;
  float scale;
};

// Shared memory of the kernel for head dims 64 and 128, bytes from a 1024-aligned start. Q and dO are rings of two tiles.
struct BackwardLayout {
  int key_rows, kv_bytes, q_bytes, ds_bytes;
  int k, v, q, dout, ds, dq, stats, barriers, total;
};
constexpr int kQueryStages = 2;
constexpr BackwardLayout backward_layout(int head_dim) {
  BackwardLayout l{};
  l.key_rows = backward_key_rows(head_dim);
  l.kv_bytes = l.key_rows * head_dim * 2;
  l.q_bytes = kQueryRows * head_dim * 2;
  l.ds_bytes = l.key_rows * kQueryRows * 2;
  l.k = 0;
  l.v = l.k + l.kv_bytes;
  l.q = l.v + l.kv_bytes;
  l.dout = l.q + kQueryStages * l.q_bytes;
  l.ds = l.dout + kQueryStages * l.q_bytes;
  l.dq = l.ds + 2 * l.ds_bytes;
  l.stats = l.dq + 2 * 2 * kPiece * 4;
  l.barriers = l.stats + kQueryStages * kStats * 4;
  l.total = 1024 + l.barriers + 128;
  return l;
}

// Head dim 128 with dS stored instead of dQ summed.
constexpr int kStoredStages = 3;
constexpr BackwardLayout stored_layout() {
  BackwardLayout l = backward_layout(128);
  l.dout = l.q + kStoredStages * l.q_bytes;
  l.ds = l.dout + kStoredStages * l.q_bytes;
  l.dq = 0;
  l.stats = l.ds + 2 * l.ds_bytes;
  l.barriers = l.stats + kStoredStages * kStats * 4;
  l.total = 1024 + l.barriers + 256;
  return l;
}

// Head dim 256, the kernel over blocks of 64 keys: `dq` is where P goes from one warpgroup to the other, in fragment order.
constexpr int kDsTile = 64 * kQueryRows;  // elements of a tile of dS^T
constexpr BackwardLayout wide_layout() {
  BackwardLayout l{};
  l.key_rows = 64;
  l.kv_bytes = 64 * 256 * 2;
  l.q_bytes = kQueryRows * 256 * 2;
  l.ds_bytes = kDsTile * 2;
  l.k = 0;
  l.v = l.kv_bytes;
  l.q = 2 * l.kv_bytes;
  l.dout = l.q + kQueryStages * l.q_bytes;
  l.dq = l.dout + kQueryStages * l.q_bytes;
  l.ds = l.dq + kDsTile * 2;
  l.stats = l.ds + 2 * l.ds_bytes;
  l.barriers = l.stats + kQueryStages * kStats * 4;
  l.total = 1024 + l.barriers + 128;
  return l;
}
// ... and the product dQ = dS K over blocks of 128 queries: a ring of K tiles of 64 rows with the two dS^T tiles that meet them.
constexpr int kProductTiles = 2;
constexpr int product_stages(int head_dim) { return head_dim == 256 ? 4 : 6; }
constexpr int product_stage_bytes(int head_dim) { return 64 * head_dim * 2 + kProductTiles * kDsTile * 2; }
constexpr int product_shared(int head_dim) { return 1024 + product_stages(head_dim) * product_stage_bytes(head_dim) + 128; }
// How many blocks of 64 keys a tile of queries meets.
constexpr int key_blocks_of_tile(bool causal, int tile, int query_tiles, int sq, int sk) {
  if (tile >= query_tiles) return 0;
  const int last = smaller(sq, (tile + 1) * kQueryRows) - 1, keys = causal ? smaller(sk, last + sk - sq + 1) : sk;
  return keys <= 0 ? 0 : ceil_div(keys, 64);
}

constexpr int kSharedLimit = 232448;
static_assert(backward_layout(64).total <= kSharedLimit && backward_layout(128).total <= kSharedLimit);
static_assert(wide_layout().total <= kSharedLimit && product_shared(256) <= kSharedLimit && product_shared(128) <= kSharedLimit &&
              stored_layout().total <= kSharedLimit);

}  // namespace flashgpt::attention::sm90
