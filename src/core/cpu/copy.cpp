// Fills on the CPU.
#include "core/copy.h"

#include <algorithm>
#include <cstring>

namespace flashgpt {
namespace {

constexpr std::int64_t kBlock = 1 << 18;  // bytes a task

}  // namespace

void check(const Fill& op) {
  require(op.y.contiguous(), "fill: y of shape ", op.y.shape.str(), " is not contiguous");
  require(op.y.dtype == Dtype::kF32 || op.value == 0, "fill: y is ", name_of(op.y.dtype), ", which can be filled with 0 only");
}

void launch(CpuStream s, const Fill& op, Scratch) {
  const std::int64_t bytes = static_cast<std::int64_t>(op.y.bytes());
  s.pool.parallel_for((bytes + kBlock - 1) / kBlock, [&](std::int64_t task, int) {
    char* p = static_cast<char*>(op.y.data) + task * kBlock;
    const std::int64_t n = std::min(kBlock, bytes - task * kBlock);
    if (op.value == 0)  // also -0: nobody asks for its sign
      std::memset(p, 0, static_cast<std::size_t>(n));
    else
      std::fill_n(reinterpret_cast<float*>(p), n / static_cast<std::int64_t>(sizeof(float)), op.value);
  });
}

}  // namespace flashgpt
