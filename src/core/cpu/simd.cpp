#include "core/cpu/simd.h"

namespace flashgpt::simd {

Isa isa() {
  static const Isa in_use = cpu_target(1).isa;
  return in_use;
}

}  // namespace flashgpt::simd
