// Sums over tokens on the GPU, host side.
#pragma once
#include "core/context.h"
#include "ops/cuda/arguments.h"

namespace flashgpt::ops {

inline Int64 row_blocks(Int64 rows) { return (rows + kRowsOfBlock - 1) / kRowsOfBlock; }
inline Int64 column_grid(Int64 rows, Int64 columns) { return row_blocks(rows) * ((columns + kColumnsOfBlock - 1) / kColumnsOfBlock); }
inline std::size_t partial_bytes(Int64 rows, Int64 columns) { return static_cast<std::size_t>(row_blocks(rows) * columns) * sizeof(float); }

// out[c] += the sum over n of x[n, c]. partial: partial_bytes.
void add_column_sums(CudaStream s, const float* x, Int64 rows, Int64 columns, float* partial, float* out);
// out[c] += the sum over blocks of partial[block, c].
void add_partials(CudaStream s, const float* partial, Int64 blocks, Int64 columns, float* out);

}  // namespace flashgpt::ops
