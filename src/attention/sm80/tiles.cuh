// What the kernels of this folder share: the piece of work of a block, lengths, loads and stores of tiles, scores.
#pragma once
#include "attention/sm80/arguments.h"
#include "core/tile/math.cuh"
#include "core/tile/mma.cuh"

namespace flashgpt::attention::sm80 {

using namespace tile;

struct Item {
  int first, head, sequence;  // first row of the tile
};
// The index-th piece of work: a tile of `block` rows of a head. False behind the last one. Reversed: the last rows of a head first, which
// under a causal mask have the most keys.
DEVICE bool find_item(const Arguments& a, const int* tiles, int index, int heads, int longest, int block, bool reversed, Item& item) {
  if (tiles) {
    const int t = index / heads;
    if (t >= tiles[0]) return false;
    item = {tiles[2 + 2 * t], index % heads, tiles[1 + 2 * t]};
    return true;
  }
  const int of_head = (longest + block - 1) / block;
  if (index >= of_head * heads * a.batch) return false;
  const Work w = work_of(index, of_head, heads * a.batch, a.section);
  item = {(reversed ? of_head - 1 - w.tile : w.tile) * block, w.head % heads, w.head / heads};
  return true;
}

struct Lengths {
  Int64 q_first, k_first;
  int len_q, len_k;
  int room_q, room_k;  // rows that belong to the sequence, in use or not
};
DEVICE Lengths lengths_of(const Arguments& a, int b) {
  Lengths n{0, 0, a.max_q, a.max_k, a.max_q, a.max_k};
  if (a.varlen) {
    n.q_first = a.cu_q[b], n.k_first = a.cu_k[b];
    n.len_q = n.room_q = a.cu_q[b + 1] - a.cu_q[b], n.len_k = n.room_k = a.cu_k[b + 1] - a.cu_k[b];
  }
  if (a.used_q) n.len_q = a.used_q[b];
  if (a.used_k) n.len_k = a.used_k[b];
  return n;
}

// Rows [0, R) of `from` into a tile, of which those from `rows` on and columns from `columns` on are zeros.
template <int R, int Columns, int Threads, bool Whole>
DEVICE void load_tile(uint32_t tile, const unsigned short* from, Int64 stride, int rows, int columns) {
#pragma unroll
  for (int block = 0; block < Columns; block += kSwizzleColumns) {
    const bool narrow = Columns - block < kSwizzleColumns;
    const int pieces = narrow ? 4 : 8, together = Threads / pieces;
    const int piece = threadIdx.x % pieces, row0 = threadIdx.x / pieces, column = block + piece * 8;
    const uint32_t to = tile + block * R * 2 + row0 * kSwizzleRowBytes + (piece ^ (row0 % 8)) * 16;
    const unsigned short* source = from + row0 * stride + column;
#pragma unroll
    for (int i = 0; i < R; i += together) {
      if (together > R && row0 >= R) continue;
      const bool in = row0 + i < rows;
      if constexpr (Whole) {
        copy16(to + i * kSwizzleRowBytes, source + i * stride, in && column < columns);
      } else {
        uint32_t v[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const uint32_t low = in && column + 2 * e < columns ? source[i * stride + 2 * e] : 0;
          const uint32_t high = in && column + 2 * e + 1 < columns ? source[i * stride + 2 * e + 1] : 0;
          v[e] = low | high << 16;
        }
        store_shared4(to + i * kSwizzleRowBytes, v[0], v[1], v[2], v[3]);
      }
    }
  }
}

// Rows [first, first + Count) of a tile to memory, by `Threads` threads of which this is number `thread`: row r goes to to + r * stride while
// r < rows.
template <int R, int Columns, int Count, int Threads, bool Whole>
DEVICE void store_rows(uint32_t tile, int first, int thread, unsigned short* to, Int64 stride, int rows, int columns) {
#pragma unroll
  for (int block = 0; block < Columns; block += kSwizzleColumns) {
    const bool narrow = Columns - block < kSwizzleColumns;
    const int pieces = narrow ? 4 : 8, together = Threads / pieces;
    const int piece = thread % pieces, row0 = first + thread / pieces, column = block + piece * 8;
#pragma unroll
    for (int i = 0; i < Count; i += together) {
      const int row = row0 + i;
      if (row >= rows || column >= columns || (together > Count && row >= first + Count)) continue;
      uint32_t v[4];
      load_shared16(v, tile + block * R * 2 + row * kSwizzleRowBytes + (piece ^ (row % 8)) * 16);
      unsigned short* out = to + row * stride + column;
      if constexpr (Whole) {
        store_global16(out, v);
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (column + e < columns) out[e] = static_cast<unsigned short>(v[e / 2] >> (16 * (e % 2)));
      }
    }
  }
}

// tanh by 2^x and a reciprocal: as exact as fp32 sums are, where tanh.approx is off by 2^-11.
DEVICE float tanh_exact(float x) { return 1.0f - __fdividef(2.0f, 1.0f + ex2(x * (2 * kLog2e))); }

DEVICE float slope_of(const Arguments& a, int b, int h) {
  return a.slopes ? a.slopes[b * a.slopes_batch_stride + a.slopes_first + h] : alibi_slope(a.total_heads, a.head_offset + h);
}

constexpr int kFar = 1 << 30;

// The keys [low, high) that query i sees; `shift` is len_k - len_q. The rules of mask.h, in 32 bits.
struct Seen {
  int low, high;
};
template <bool Left> DEVICE Seen keys_of_query(const Arguments& a, int i, int shift, int len_k) {
  const int at = i + shift;
  return {Left ? at - a.left : -kFar, a.right < 0 ? len_k : smaller(len_k, at + a.right + 1)};
}
template <bool Left> DEVICE Seen keys_of_tile(const Arguments& a, int first, int last, int shift, int len_k) {
  return {Left ? larger(0, first + shift - a.left) : 0, a.right < 0 ? len_k : smaller(len_k, last + shift + a.right)};
}

}  // namespace flashgpt::attention::sm80
