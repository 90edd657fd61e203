// With FLASHGPT_TEST_DEVICE=cuda the tests of the ops run each op on the first GPU: the same cases, the same oracle.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/cuda/api.h"
#include "core/cuda/gpu.h"
#include "core/memory.h"
#include "core/run.h"

namespace flashgpt::testing {

inline bool on_gpu() {
  static const bool asked = [] {
    const char* device = std::getenv("FLASHGPT_TEST_DEVICE");
    return device && std::string(device) == "cuda";
  }();
  return asked;
}
// Sums run in another order than on the CPU.
inline double gpu_slack() { return on_gpu() ? 2.0 : 1.0; }

inline const CudaStream& gpu_queue() {
  static const CudaStream queue = cuda::open_gpu(0);
  return queue;
}

// From its first to its last element, gaps included.
inline std::size_t span_bytes(const Tensor& t) {
  if (t.numel() == 0) return 0;
  std::int64_t last = 0;
  for (int d = 0; d < t.rank(); ++d) last += (t.dim(d) - 1) * t.strides[d];
  return static_cast<std::size_t>(last + 1) * size_of(t.dtype);
}

// The op's tensors in GPU memory, those that share an address still sharing it.
class GpuCopy {
 public:
  template <class Op> explicit GpuCopy(Op& op) {
    Spans spans{*this};
    op.fields(spans);
    for (auto& [host, block] : blocks_) {
      block.memory = Memory(block.bytes, {DeviceKind::kCuda, 0});
      cuda::check(cuda::driver().cuMemcpyHtoDAsync_v2(address(block), host, block.bytes, gpu_queue().stream), "upload");
    }
    Move move{*this};
    op.fields(move);
  }
  void bring_back() {
    for (auto& [host, block] : blocks_)
      cuda::check(cuda::driver().cuMemcpyDtoHAsync_v2(host, address(block), block.bytes, gpu_queue().stream), "download");
    cuda::synchronise(gpu_queue());
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    Memory memory;
  };
  struct Spans {
    GpuCopy& copy;
    void in(const char*, const Tensor& t) {
      if (t.data && span_bytes(t) > 0) copy.blocks_[t.data].bytes = std::max(copy.blocks_[t.data].bytes, span_bytes(t));
    }
    void out(const char*, const Tensor& t) { in("", t); }
    void inout(const char*, const Tensor& t) { in("", t); }
  };
  struct Move {
    GpuCopy& copy;
    void in(const char*, const Tensor& t) {  // a field of the op that the constructor was given, which is not const
      Tensor& mine = const_cast<Tensor&>(t);
      if (const auto it = copy.blocks_.find(t.data); it != copy.blocks_.end()) mine.data = it->second.memory.data();
      mine.device = {DeviceKind::kCuda, 0};
    }
    void out(const char*, const Tensor& t) { in("", t); }
    void inout(const char*, const Tensor& t) { in("", t); }
  };
  static cuda::Address address(const Block& b) { return reinterpret_cast<cuda::Address>(b.memory.data()); }
  std::map<void*, Block> blocks_;
};

// Runs `op`, whose tensors lie in host memory, on the GPU; its results come back to their places. Scratch is full of NaN before.
template <class Op> void run_on_gpu(const Op& op) {
  const CudaStream& queue = gpu_queue();
  Op there = op;
  GpuCopy copy(there);
  check(there);
  const Target target = cuda::gpu_target(0);
  const std::size_t bytes = scratch_for(target, there);
  const Memory scratch(bytes, target.device);
  if (bytes > 0)
    cuda::check(cuda::driver().cuMemsetD8Async(reinterpret_cast<cuda::Address>(scratch.data()), 0xff, bytes, queue.stream), "");
  if constexpr (requires { launch(queue, there, Scratch{}); })
    launch(queue, there, Scratch{scratch.data(), bytes});
  else
    FAIL() << Op::kName << " has no CUDA kernel";
  cuda::synchronise(queue);
  copy.bring_back();
}

}  // namespace flashgpt::testing
