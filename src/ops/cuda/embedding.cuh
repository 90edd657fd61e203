// Rows of a table, and the gradient of the table. The gradient must not depend on the order in which threads come, so there are no atomics:
// the tokens are sorted by id (a stable radix sort), and one block sums the rows of one id in the order of the tokens.
#pragma once
#include "core/tile/types.cuh"
#include "ops/cuda/arguments.h"

namespace flashgpt::ops {

constexpr int kRowThreads = 256;

DEVICE bool inside(int id, Int64 end) { return id >= 0 && id < end; }

__global__ void __launch_bounds__(kRowThreads) embedding(EmbeddingArguments a) {
  const Int64 i = Int64(blockIdx.x) * kRowThreads + threadIdx.x;
  if (i >= a.rows * a.columns) return;
  const Int64 n = i / a.columns, c = i % a.columns;
  const bool valid = inside(a.tokens[n], a.table_rows) && (!a.position_table || inside(a.positions[n], a.position_rows));
  float y = __int_as_float(0x7fc00000);  // an id outside its table gives NaN
  if (valid) {
    y = a.table[a.tokens[n] * a.columns + c];
    if (a.position_table) y += a.position_table[a.positions[n] * a.columns + c];
  }
  a.y[i] = y;
}

// Ids outside the table count as one, behind all others.
DEVICE int key_of(const SortArguments& a, Int64 i) { return inside(a.keys_in[i], a.end) ? a.keys_in[i] : a.end; }
DEVICE int digit(int key, int shift) { return (key >> shift) & 255; }

// How often each digit comes in a block's items.
__global__ void __launch_bounds__(kSortThreads) sort_count(SortArguments a) {
  __shared__ int counts[256];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const Int64 first = Int64(blockIdx.x) * kSortItems;
  for (int i = threadIdx.x; i < kSortItems && first + i < a.n; i += kSortThreads)
    atomicAdd(&counts[digit(key_of(a, first + i), a.shift)], 1);
  __syncthreads();
  a.counts[Int64(threadIdx.x) * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

// Exclusive sum over all counts, by one block: where each block's items of each digit go.
__global__ void __launch_bounds__(kSortThreads) sort_scan(SortArguments a) {
  const Int64 blocks = (a.n + kSortItems - 1) / kSortItems;
  __shared__ int totals[256];
  int total = 0;
  for (Int64 b = 0; b < blocks; ++b) total += a.counts[threadIdx.x * blocks + b];
  totals[threadIdx.x] = total;
  __syncthreads();
  int before = 0;
  for (int d = 0; d < static_cast<int>(threadIdx.x); ++d) before += totals[d];
  for (Int64 b = 0; b < blocks; ++b) {
    const int count = a.counts[threadIdx.x * blocks + b];
    a.counts[threadIdx.x * blocks + b] = before;
    before += count;
  }
}

// Moves items to their place. A warp after the other takes 32 items: those of one digit keep their order.
__global__ void __launch_bounds__(kSortThreads) sort_scatter(SortArguments a) {
  __shared__ int next[256];
  next[threadIdx.x] = a.counts[Int64(threadIdx.x) * gridDim.x + blockIdx.x];
  const Int64 first = Int64(blockIdx.x) * kSortItems;
  const int lane = tile::lane_index(), warp = threadIdx.x / tile::kWarp;
  for (int start = 0; start < kSortItems; start += kSortThreads) {
    const Int64 i = first + start + threadIdx.x;
    const bool there = i < a.n;
    const int key = there ? key_of(a, i) : 0, d = digit(key, a.shift);
    for (int turn = 0; turn < kSortThreads / tile::kWarp; ++turn) {
      __syncthreads();
      if (turn != warp) continue;
      const uint32_t alive = __ballot_sync(~0u, there), same = __match_any_sync(~0u, there ? d : -1) & alive;
      if (there) {
        const int rank = __popc(same & ((1u << lane) - 1)), to = next[d] + rank;
        a.keys_out[to] = key;
        a.values_out[to] = a.values_in ? a.values_in[i] : static_cast<int>(i);
      }
      __syncwarp();
      if (there && (same >> lane) == 1u) next[d] += __popc(same);  // the last of its digit
    }
  }
}

// One block an entry of the sorted list; the first of its id adds up all of them.
__global__ void __launch_bounds__(kRowThreads) segment_sum(SegmentSumArguments a) {
  const Int64 first = blockIdx.x;
  const int id = a.keys[first];
  if ((first > 0 && a.keys[first - 1] == id) || !inside(id, a.table_rows)) return;
  for (Int64 c = threadIdx.x; c < a.columns; c += kRowThreads) {
    float total = a.dtable[id * a.columns + c];
    for (Int64 i = first; i < a.n && a.keys[i] == id; ++i) {
      const int n = a.rows[i];
      const bool valid = inside(a.tokens[n], a.tokens_end) && (!a.positions || inside(a.positions[n], a.positions_end));
      if (valid) total += a.dy[n * a.columns + c];
    }
    a.dtable[id * a.columns + c] = total;
  }
}

}  // namespace flashgpt::ops
