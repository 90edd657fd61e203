// Tensors as the Hopper kernels take them.
#pragma once
#include "attention/sm90/backward_config.h"
#include "core/cuda/tensor_map.h"
#include "flashgpt/dtype.h"

namespace flashgpt::attention::sm90 {

// A tensor [batch][length][heads][columns] of 16-bit elements in device memory; strides in elements, multiples of 8; columns contiguous,
// data aligned to 16 bytes.
struct Rows {
  void* data = nullptr;
  int batch = 0, length = 0, heads = 0, columns = 0;
  RowStrides strides{};
};

// Throws Error(kInvalid) where r has another shape than `like`, or strides or an address that the kernels cannot take.
void check_rows(const char* name, const Rows& r, const Rows& like);

// Boxes of box_rows rows and 64 columns, swizzled; rows past the length read as zero and are not written.
cuda::TensorMapBytes map_of(const Rows& r, Dtype dtype, int box_rows);
// The same of sequences one after the other (batch = 1), whose ends are told by coordinates: kRagged in forward_config.h.
cuda::TensorMapBytes ragged_map_of(const Rows& r, Dtype dtype, int box_rows);

}  // namespace flashgpt::attention::sm90
