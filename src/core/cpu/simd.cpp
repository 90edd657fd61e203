// The choice of instruction set that all vector kernels share.
#include "core/cpu/simd.h"

#include <atomic>

namespace flashgpt::simd {
namespace {

std::atomic<Isa>& in_use() {
  static std::atomic<Isa> isa = cpu_target(1).isa;
  return isa;
}

}  // namespace

Isa isa() { return in_use().load(std::memory_order_relaxed); }
Isa use_isa(Isa isa) { return in_use().exchange(isa, std::memory_order_relaxed); }

}  // namespace flashgpt::simd
