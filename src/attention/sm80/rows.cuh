// The kernels that go through rows, before and after the ones with products.
#pragma once
#include "attention/sm80/tiles.cuh"

namespace flashgpt::attention::sm80 {

// Tokens behind the last sequence belong to none: zeros, and lse -inf.
__global__ void __launch_bounds__(64) clear_tail(TailArguments a) {
  const Int64 row = blockIdx.x;
  if (row < a.cu[a.batch]) return;
  for (Int64 i = threadIdx.x; i < a.heads * a.columns; i += 64) {
    if (a.rows.data) a.rows.at(0, row, i / a.columns)[i % a.columns] = 0;
    if (a.wide.data) a.wide.at(0, row, i / a.columns)[i % a.columns] = 0.0f;
  }
  for (Int64 h = threadIdx.x; a.lse.data && h < a.heads; h += 64) *a.lse.at(0, row, h) = -infinity();
}

}  // namespace flashgpt::attention::sm80
