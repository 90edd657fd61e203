// Starts a kernel by its device file and name: compiled for the queue's GPU when it is first used.
#pragma once
#include "core/context.h"
#include "core/cuda/kernels.h"

namespace flashgpt::cuda {

// "sm_90a" for Hopper, whose own instructions need the suffix; "sm_80".
std::string arch_of(int capability);

inline constexpr unsigned kThreads = 256;  // of a block, where the kernel does not say otherwise

inline unsigned blocks_for(std::int64_t work, std::int64_t each) { return static_cast<unsigned>((work + each - 1) / each); }

// One block for each `grid`; nothing happens for 0. The kernel takes one struct.
template <class Arguments> void call(const CudaStream& s, const char* file, const std::string& expression, unsigned grid,
                                     const Arguments& arguments, unsigned threads = kThreads) {
  if (grid == 0) return;
  const Kernel& k = kernel({.file = file, .expression = expression, .arch = arch_of(s.capability), .options = {}});
  launch(k, {.grid = grid, .block = threads, .stream = s.stream}, arguments);
}

}  // namespace flashgpt::cuda
