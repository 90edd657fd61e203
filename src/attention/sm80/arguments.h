// device: shared
// The 16-bit attention kernels for any GPU from Ampere on: variants, shapes of tiles, and what a kernel is handed.
#pragma once
#include "attention/score.h"

namespace flashgpt::attention::sm80 {

// One variant. A kernel holds no code of a feature that is off here.
struct Variant {
  int dim = 64, v_dim = 64;  // head dims, rounded up to 32, 64, 96, 128, 192, 256
  bool half = false;         // fp16 instead of bf16
  int kilobytes = 163;       // of shared memory a block may have: 99, 163 or 227
  bool left = false;         // the window has a left side
  bool alibi = false, softcap = false, dropout = false, sink = false, blocks = false;
  bool whole = true;  // rows start at multiples of 16 bytes and head dims are multiples of 8
  bool wide = false;  // o in fp32
};

constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Bytes of a tile of 16-bit rows in blocks of 64 columns (core/tile/smem.cuh).
constexpr int tile_bytes_of(int rows, int columns) { return (columns + 63) / 64 * rows * 128; }
constexpr int kAlignment = 128;  // of a tile; shared memory has this much room more

struct Shape {
  int rows;    // queries of a tile
  int keys;    // of a tile
  int warps;   // of a block
  int blocks;  // at least, on a multiprocessor: what the registers of a thread are bounded by
};
// A warp has rows / warps queries: 32 where the sums fit in registers, since each fragment of K and V then serves two products.
constexpr Shape forward_shape(const Variant& v) {
  const int d = larger(v.dim, v.v_dim);
  const bool plain = !v.alibi && !v.softcap && !v.left && !v.dropout && !v.blocks;
  if (d <= 64) return {128, plain ? 128 : 64, 4, 2};
  if (d <= 128) return {128, 64, v.alibi || v.softcap || v.dropout || v.blocks ? 8 : 4, 1};
  if (d == 256 && v.kilobytes < 163) return {64, 64, 4, 1};
  return {128, 64, 8, 1};
}
constexpr int forward_shared(const Variant& v) {
  const Shape s = forward_shape(v);
  return kAlignment + tile_bytes_of(s.rows, larger(v.dim, v.v_dim)) + tile_bytes_of(s.keys, v.dim) + tile_bytes_of(s.keys, v.v_dim);
}

// How `warps` warps share a matrix of rows x columns, each a part in multiples of 16: as many along the rows as make the parts' sides,
// which are what a warp loads, shortest.
constexpr int warps_along_rows(int rows, int columns, int warps) {
  int best = 0, side = 1 << 20;
  for (int r = 1; r <= warps; r *= 2) {
    const int c = warps / r;
    if (rows % (16 * r) != 0 || columns % (16 * c) != 0 || rows / r + columns / c >= side) continue;
    best = r, side = rows / r + columns / c;
  }
  return best;
}

struct BackwardShape {
  int rows, keys, warps;
  int stages;  // tiles of queries (of keys, in the kernel for dq) under way or in use
};
// The kernel for dk and dv, which walks the queries.
constexpr BackwardShape keys_shape(const Variant& v) {
  const int d = larger(v.dim, v.v_dim);
  if (v.kilobytes < 163) {
    if (d <= 64) return {64, 128, 8, 2};
    if (d <= 128) return {64, 64, 8, 1};
    if (d <= 192) return {32, 64, 8, 1};
    return {32, 32, 4, 1};
  }
  if (d <= 64) return {128, 128, 8, 2};
  if (d <= 128) return {64, 128, 8, 2};
  return {64, 64, 8, d <= 192 || v.kilobytes >= 227 ? 2 : 1};
}
// Bytes from the start of an aligned block: K, V, then the stages of Q, dO and the statistics of their rows, then P and dS.
struct KeysLayout {
  int v, queries, q_bytes, stage_bytes, stats, p, ds, total;  // stats: in a stage
};
constexpr KeysLayout keys_layout(const Variant& v) {
  const BackwardShape s = keys_shape(v);
  KeysLayout l{};
  l.v = tile_bytes_of(s.keys, v.dim);
  l.queries = l.v + tile_bytes_of(s.keys, v.v_dim);
  l.q_bytes = tile_bytes_of(s.rows, v.dim);
  l.stats = l.q_bytes + tile_bytes_of(s.rows, v.v_dim);
  l.stage_bytes = l.stats + 2 * s.rows * 4;
  l.p = l.queries + s.stages * l.stage_bytes;
  l.ds = l.p + tile_bytes_of(s.rows, s.keys);
  l.total = l.ds + tile_bytes_of(s.rows, s.keys) + kAlignment;
  return l;
}
// The kernel for dq alone, which walks the keys; a warp has 16 queries.
constexpr BackwardShape queries_shape(const Variant& v) {
  const int d = larger(v.dim, v.v_dim);
  const bool narrow = v.kilobytes < 163;
  if (d <= 128) return {128, 64, 8, narrow ? 1 : 2};
  if (d <= 192) return {64, 64, 4, 1};
  return {64, narrow ? 32 : 64, 4, 1};
}
constexpr int queries_shared(const Variant& v) {
  const BackwardShape s = queries_shape(v);
  return kAlignment + tile_bytes_of(s.rows, v.dim) + tile_bytes_of(s.rows, v.v_dim) +
         s.stages * (tile_bytes_of(s.keys, v.dim) + tile_bytes_of(s.keys, v.v_dim));
}

// By (sequence, row, head, column); strides in elements, columns are contiguous. Varlen: sequence stride 0.
template <class T> struct View {
  T* data;
  Int64 sequence, row, head;
  FLASHGPT_HD T* at(Int64 b, Int64 i, Int64 h) const { return data + b * sequence + i * row + h * head; }
};
using Rows = View<unsigned short>;
using Column = View<float>;  // a number a row

constexpr int kLeastBlock = 8;  // queries or keys of a block of a block mask

struct BlockList {  // of blocks.h, for queries
  const int *count, *index;
  Int64 batch_stride, head_stride, room;
};

struct Arguments {
  Rows q, k, v, o;
  View<float> wide_o;  // instead of o
  Column lse;
  const int *cu_q, *cu_k, *used_q, *used_k;
  const float* slopes;
  Int64 slopes_batch_stride, slopes_first;
  Int64 total_heads, head_offset;  // for the paper's slopes, where none are given
  int batch, max_q, max_k;
  int heads, kv_heads, group, head_dim, v_head_dim;
  bool varlen;
  const int *q_tiles, *k_tiles;  // varlen: lists of the tiles that there are; dense: null
  int left, right;               // of the mask; negative: no limit
  int section;                   // heads whose keys and values fit the L2 cache together
  float scale;                   // of q k; with softcap: scale / softcap
  float softcap;
  const Int64* dropout_state;  // seed, offset
  unsigned dropout_stream, dropout_threshold;
  const float* sinks;  // by head
  BlockList full, partial;
  int block_q, block_k;
  // Backward.
  Rows dout, dq, dk, dv;
  Column dlse;          // may have no data
  float *lse2, *delta;  // [heads][total_q]: lse log2(e), +inf where no key is seen; rowsum(dout o) - dlse
  // Sums of dq, or null: dq by a kernel of its own. Varlen: [heads][total_q][Variant::dim]; dense: [batch][heads][sum_rows / 16]
  // [dim / 8] pieces of 16 x 8 in fragment order.
  float* dq_sum;  // [heads][total_q][Variant::dim], or null: dq by a kernel of its own
  Int64 total_q;
  float* dsink;
  float gradient_scale;  // d score / d (q k), softcap's part aside
};
constexpr int kRowThreads = 256;
// How many lanes share a row in the kernels that go through rows, 8 columns each.
constexpr int lanes_of(int dim) { return dim <= 32 ? 4 : dim <= 64 ? 8 : dim <= 128 ? 16 : 32; }

// Order of the work of a dense batch: heads in sections; inside a section tile by tile, neighbours in different heads. `heads`: of all
// sequences.
struct Work {
  int tile, head;
};
FLASHGPT_HD constexpr Work work_of(int index, int tiles, int heads, int section) {
  const int done = index / (section * tiles) * section, inside = index - done * tiles,
            width = section < heads - done ? section : heads - done;
  return {inside / width, done + inside % width};
}

// Rows of a sequence in dq_sum, dense.
FLASHGPT_HD constexpr Int64 sum_rows(Int64 max_q) { return (max_q + 127) / 128 * 128; }

struct TailArguments {  // rows behind the last sequence of a varlen batch
  Rows rows;
  View<float> wide;
  Column lse;  // these may have no data
  const int* cu;
  Int64 batch, heads, columns;
};

}  // namespace flashgpt::attention::sm80
