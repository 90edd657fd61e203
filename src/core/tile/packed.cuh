// Arithmetic on two packed 16-bit floats.
#pragma once
#include "core/tile/types.cuh"

namespace flashgpt::tile {

template <class E> DEVICE uint32_t multiply2(uint32_t x, uint32_t y) {
  uint32_t r;
  if constexpr (E::kIsHalf)
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  else
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  return r;
}

}  // namespace flashgpt::tile
