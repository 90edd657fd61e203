// Dropout and block lists, as the kernels of this folder see them.
#pragma once
#include "attention/sm80/tiles.cuh"
#include "core/philox.h"

namespace flashgpt::attention::sm80 {

DEVICE Dropout dropout_of(const Arguments& a) {
  return {static_cast<unsigned long long>(a.dropout_state[0]), static_cast<unsigned>(a.dropout_state[1]) + a.dropout_stream,
          a.dropout_threshold};
}
DEVICE unsigned sequence_head(const Arguments& a, int b, int h) { return static_cast<unsigned>(b * a.total_heads + a.head_offset + h); }

// Which scores of a thread are kept: bit 4 half + 2 (j % 2) + e of keep[r][j / 2], for element 2 half + e of piece (r, j) of 16 x 8. One call
// of the generator has the bits of a thread in a 16 x 16 block (core/philox.h). `row` and `column`: those of the thread's first element; its
// pieces start at multiples of 16.
template <int R, int J>
DEVICE void keep_bits(const Arguments& a, unsigned sequence_head, int row, int column, unsigned (&keep)[R][J / 2]) {
  const Dropout d = dropout_of(a);
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int j = 0; j < J / 2; ++j) {
      const PhiloxBlock block = dropout_block(d, sequence_head, dropout_group(row) + 4 * r, dropout_group(column) + 4 * j);
      unsigned bits = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned word = row % 2 ? block[2 * half + 1] : block[2 * half];
#pragma unroll
        for (int n = 0; n < 4; ++n) bits |= ((word >> 8 * n & 255u) >= d.threshold ? 1u : 0u) << (4 * half + n);
      }
      keep[r][j] = bits;
    }
}
template <int R, int J2> DEVICE bool is_kept(const unsigned (&keep)[R][J2], int r, int half, int j, int e) {
  return keep[r][j / 2] >> (4 * half + 2 * (j % 2) + e) & 1u;
}

constexpr int kUnseen = 0, kPartial = 1, kFull = 2;

DEVICE bool has(const BlockList& list, int b, int h, int row, int column) {
  if (!list.count) return false;
  const Int64 at = b * list.batch_stride + h * list.head_stride + row;
  const int* index = list.index + at * list.room;
  int low = 0, high = list.count[at];
  while (low < high) {
    const int middle = (low + high) / 2;
    if (index[middle] < column)
      low = middle + 1;
    else
      high = middle;
  }
  return low < list.count[at] && index[low] == column;
}
DEVICE int block_state(const Arguments& a, int b, int h, int row, int column) {
  return has(a.full, b, h, row, column) ? kFull : has(a.partial, b, h, row, column) ? kPartial : kUnseen;
}

// The states of the blocks that a tile of scores meets, in shared memory.
struct BlockTable {
  static constexpr int kRoom = (128 / kLeastBlock + 1) * (128 / kLeastBlock + 1);  // for tiles of 128 x 128
  unsigned char* state;
  int first_row, first_column, columns;

  // All threads of the block; the table before has been read by all. Returns whether any block of the tile is seen. Queries [row, last_row),
  // keys [column, last_column).
  DEVICE bool read(const Arguments& a, int sequence, int head, int row, int last_row, int column, int last_column) {
    first_row = row / a.block_q, first_column = column / a.block_k;
    columns = (last_column - 1) / a.block_k - first_column + 1;
    const int rows = (last_row - 1) / a.block_q - first_row + 1;
    bool any = false;
    for (int i = threadIdx.x; i < rows * columns; i += blockDim.x) {
      const int found = block_state(a, sequence, head, first_row + i / columns, first_column + i % columns);
      state[i] = static_cast<unsigned char>(found);
      any = any || found != kUnseen;
    }
    return __syncthreads_or(any);
  }
  // Whether a query of the tile sees a key of it; `masked`: the mask hides the pair.
  DEVICE bool sees(const Arguments& a, int row, int column, bool masked) const {
    const int found = state[(row / a.block_q - first_row) * columns + column / a.block_k - first_column];
    return found == kFull || (found == kPartial && !masked);
  }
};

}  // namespace flashgpt::attention::sm80
