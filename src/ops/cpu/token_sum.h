// Sums over tokens (gradients of norms and biases) that do not depend on the number of threads: tokens are cut in blocks by their number
// alone, each block sums its rows in order into a partial of its own, and the partials are added in order.
#pragma once
#include <algorithm>

#include "core/cpu/simd.h"
#include "core/run.h"

namespace flashgpt {

struct TokenBlocks {
  std::int64_t rows;   // of a block
  std::int64_t count;  // at most 128, so that partials stay small beside the tensors
};

inline TokenBlocks token_blocks(std::int64_t tokens) {
  const std::int64_t rows = std::max<std::int64_t>(16, (tokens + 127) / 128);
  return {rows, (tokens + rows - 1) / rows};
}

// Rows of `columns` floats for a task of about 64 KB, where nothing is summed.
inline std::int64_t rows_of_task(std::int64_t columns) { return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, columns)); }

// out[c] += partial[0][c] + partial[1][c] + ...; the rows of partial are `stride` floats apart.
void add_partials(CpuStream s, const float* partial, std::int64_t count, std::int64_t stride, std::int64_t columns, float* out);

}  // namespace flashgpt
