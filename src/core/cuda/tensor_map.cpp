// Encodes tensor maps through the driver.
#include "core/cuda/tensor_map.h"

#include "flashgpt/error.h"

namespace flashgpt::cuda {

namespace {
int map_type(Dtype t) {
  switch (t) {
    case Dtype::kBF16: return kMapBf16;
    case Dtype::kF16: return kMapFp16;
    case Dtype::kF32: return kMapFp32;
    default: fail("a tensor map of ", name_of(t), " is not known here");
  }
}
}  // namespace

TensorMapBytes tensor_map(const TensorMapSpec& s) {
  static constexpr unsigned kOnes[5] = {1, 1, 1, 1, 1};
  TensorMapBytes m;
  const Result r = driver().cuTensorMapEncodeTiled(&m, map_type(s.dtype), static_cast<unsigned>(s.rank), const_cast<void*>(s.data), s.dims,
                                                   s.strides, s.box, kOnes, 0, s.swizzle, kPromote256, 0);
  if (r) {
    std::string text;
    for (int i = 0; i < s.rank; ++i) text += cat(" ", s.dims[i], i ? cat("@", s.strides[i - 1]) : "", "/", s.box[i]);
    check(r, cat("tensor map (extent@stride/box, at ", s.data, "):", text).c_str());
  }
  return m;
}

}  // namespace flashgpt::cuda
