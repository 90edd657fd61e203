#include "attention/sm90/rows.h"

#include <algorithm>

#include "attention/sm90/forward_config.h"
#include "flashgpt/error.h"

namespace flashgpt::attention::sm90 {

void check_rows(const char* name, const Rows& r, const Rows& like) {
  require(r.batch == like.batch && r.length == like.length && r.heads == like.heads && r.columns == like.columns, name, " is [", r.batch,
          ", ", r.length, ", ", r.heads, ", ", r.columns, "], expected [", like.batch, ", ", like.length, ", ", like.heads, ", ",
          like.columns, "]");
  require(r.strides.sequence % 8 == 0 && r.strides.row % 8 == 0 && r.strides.head % 8 == 0, name, " has strides ", r.strides.sequence, ", ",
          r.strides.row, ", ", r.strides.head, " elements, expected multiples of 8");
  require(reinterpret_cast<std::uintptr_t>(r.data) % 16 == 0, name, " is not aligned to 16 bytes");
}

cuda::TensorMapBytes map_of(const Rows& r, Dtype dtype, int box_rows) {
  const auto bytes = [](long long elements) { return static_cast<std::uint64_t>(elements) * 2; };
  cuda::TensorMapSpec s{.data = r.data, .dtype = dtype, .rank = 4};
  const int dims[] = {r.columns, r.length, r.heads, r.batch};
  for (int i = 0; i < 4; ++i) s.dims[i] = static_cast<std::uint64_t>(dims[i]);
  s.strides[0] = bytes(r.strides.row);
  s.strides[1] = bytes(r.strides.head);
  s.strides[2] = bytes(r.strides.sequence);
  s.box[0] = 64;
  s.box[1] = static_cast<unsigned>(box_rows);
  s.box[2] = s.box[3] = 1;
  return cuda::tensor_map(s);
}

cuda::TensorMapBytes ragged_map_of(const Rows& r, Dtype dtype, int box_rows) {
  const auto row_bytes = static_cast<std::uint64_t>(r.strides.row) * 2;
  const auto heads = static_cast<std::uint64_t>(r.heads), columns = static_cast<std::uint64_t>(r.columns);
  cuda::TensorMapSpec s{.data = r.data, .dtype = dtype, .rank = 5};
  const std::uint64_t dims[] = {columns, kRagged, heads, std::uint64_t{kRagged} + 1, static_cast<std::uint64_t>(r.length) + 1};
  std::copy(std::begin(dims), std::end(dims), s.dims);
  s.strides[0] = s.strides[3] = row_bytes;
  s.strides[1] = static_cast<std::uint64_t>(r.strides.head) * 2;
  s.strides[2] = (std::uint64_t{1} << 34) - row_bytes;
  const unsigned box[] = {64, static_cast<unsigned>(box_rows), 1, 1, 1};
  std::copy(std::begin(box), std::end(box), s.box);
  return cuda::tensor_map(s);
}

}  // namespace flashgpt::attention::sm90
