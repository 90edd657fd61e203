// Views of tensors: shapes and strides only, no element is touched.
#include "flashgpt/tensor.h"

namespace flashgpt {

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    if (shape.dims[i] != 1 && strides[i] != expected) return false;
    expected *= shape.dims[i];
  }
  return true;
}

Tensor Tensor::view(Shape s) const {
  require(contiguous(), "view of a strided tensor ", shape.str());
  require(s.numel() == numel(), "view of ", shape.str(), " as ", s.str(), ": another number of elements");
  return Tensor(data, s, dtype, device);
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t length) const {
  const int d = dim < 0 ? dim + shape.rank : dim;
  require(d >= 0 && d < shape.rank && start >= 0 && length >= 0 && start + length <= shape.dims[d], "slice [", start, ", ", start + length,
          ") of dimension ", dim, " of ", shape.str());
  Tensor t = *this;
  t.data = static_cast<std::byte*>(data) + start * strides[d] * static_cast<std::int64_t>(size_of(dtype));
  t.shape.dims[d] = length;
  return t;
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const int d = dim < 0 ? dim + shape.rank : dim;
  Tensor t = slice(d, index, 1);
  for (int i = d; i + 1 < t.shape.rank; ++i) {
    t.shape.dims[i] = t.shape.dims[i + 1];
    t.strides[i] = t.strides[i + 1];
  }
  t.shape.rank -= 1;
  return t;
}

Tensor Tensor::split(int dim, std::int64_t outer, std::int64_t inner) const {
  const int d = dim < 0 ? dim + shape.rank : dim;
  require(d >= 0 && d < shape.rank && shape.rank < kMaxRank && shape.dims[d] == outer * inner, "split of dimension ", dim, " of ",
          shape.str(), " into ", outer, " x ", inner);
  Tensor t = *this;
  for (int i = shape.rank; i > d + 1; --i) {
    t.shape.dims[i] = shape.dims[i - 1];
    t.strides[i] = strides[i - 1];
  }
  t.shape.rank += 1;
  t.shape.dims[d] = outer;
  t.shape.dims[d + 1] = inner;
  t.strides[d] = strides[d] * inner;
  t.strides[d + 1] = strides[d];
  return t;
}

}  // namespace flashgpt
