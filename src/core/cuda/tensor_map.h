// Descriptions of arrays for TMA (see core/tile/tma.cuh). Pure host work, legal while a graph is captured.
#pragma once
#include <cstdint>

#include "core/cuda/api.h"
#include "flashgpt/dtype.h"

namespace flashgpt::cuda {

struct TensorMapSpec {
  const void* data = nullptr;  // 16-byte aligned
  Dtype dtype = Dtype::kBF16;
  int rank = 2;
  std::uint64_t dims[5] = {};     // elements, fastest first
  std::uint64_t strides[4] = {};  // bytes, of dimensions 1 and up: multiples of 16, below 2^40
  unsigned box[5] = {};           // elements
  int swizzle = kSwizzle128;
};
TensorMapBytes tensor_map(const TensorMapSpec& spec);

}  // namespace flashgpt::cuda
