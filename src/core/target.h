// What a context computes for: the device and its capabilities. Planning needs nothing else, so a step can be planned for a machine
// that is not there.
#pragma once
#include <cstdint>

#include "flashgpt/tensor.h"

namespace flashgpt {

enum class Isa : std::uint8_t { kPortable, kAvx2, kAvx512 };

struct Target {
  Device device;
  int threads = 1;                // CPU: workers of the pool
  Isa isa = Isa::kPortable;       // CPU: widest instruction set in use
  int compute_capability = 0;     // CUDA: 90 for Hopper
  int multiprocessors = 0;        // CUDA
  std::int64_t memory_bytes = 0;  // what the device has
};

// The machine this runs on. FLASHGPT_ISA=portable|avx2|avx512 lowers the instruction set.
Target cpu_target(int threads);
const char* name_of(Isa isa);

}  // namespace flashgpt
