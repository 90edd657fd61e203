// Sums over rows (tokens) in a fixed order: blocks of rows first, then the blocks.
#pragma once
#include "core/tile/types.cuh"
#include "ops/cuda/arguments.h"

namespace flashgpt::ops {

constexpr int kColumnThreads = 256;

// Block b of a one-dimensional grid sums kRowsOfBlock rows of kColumnsOfBlock columns: 8 threads share a column.
template <class Value> DEVICE void column_partials(Int64 rows, Int64 columns, float* partial, const Value& value) {
  constexpr int kLanes = kColumnThreads / kColumnsOfBlock;
  __shared__ float sums[kLanes][kColumnsOfBlock];
  const Int64 column_blocks = (columns + kColumnsOfBlock - 1) / kColumnsOfBlock;
  const Int64 row_block = blockIdx.x / column_blocks;
  const int column_lane = threadIdx.x % kColumnsOfBlock, row_lane = threadIdx.x / kColumnsOfBlock;
  const Int64 c = blockIdx.x % column_blocks * kColumnsOfBlock + column_lane;
  const Int64 first = row_block * kRowsOfBlock, last = first + kRowsOfBlock < rows ? first + kRowsOfBlock : rows;
  float total = 0;
  if (c < columns)
    for (Int64 n = first + row_lane; n < last; n += kLanes) total += value(n, c);
  sums[row_lane][column_lane] = total;
  __syncthreads();
  if (row_lane == 0 && c < columns) {
#pragma unroll
    for (int i = 1; i < kLanes; ++i) total += sums[i][column_lane];
    partial[row_block * columns + c] = total;
  }
}

__global__ void __launch_bounds__(kColumnThreads) column_sum(ColumnSumArguments a) {
  column_partials(a.rows, a.columns, a.partial, [&](Int64 n, Int64 c) { return a.x[n * a.columns + c]; });
}

__global__ void __launch_bounds__(kColumnThreads) add_partials(AddPartialsArguments a) {
  const Int64 c = Int64(blockIdx.x) * kColumnThreads + threadIdx.x;
  if (c >= a.columns) return;
  float total = 0;
  for (Int64 b = 0; b < a.blocks; ++b) total += a.partial[b * a.columns + c];
  a.out[c] += total;
}

}  // namespace flashgpt::ops
