// Fills on the GPU. Copies between host and GPU are in core/copy.cpp.
#include "core/copy.h"

#include <bit>

#include "core/cuda/api.h"

namespace flashgpt {

void launch(CudaStream s, const Fill& op, Scratch) {
  const std::size_t bytes = op.y.bytes();
  if (bytes == 0) return;
  const auto address = reinterpret_cast<cuda::Address>(op.y.data);
  if (op.value == 0)
    cuda::check(cuda::driver().cuMemsetD8Async(address, 0, bytes, s.stream), Fill::kName);
  else
    cuda::check(cuda::driver().cuMemsetD32Async(address, std::bit_cast<std::uint32_t>(op.value), bytes / 4, s.stream), Fill::kName);
}

}  // namespace flashgpt
