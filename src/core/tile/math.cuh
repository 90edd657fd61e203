// Arithmetic that C++ has no word for: 2^x on the special-function unit, packing to 16 bits, reductions over the 4 lanes of an accumulator row.
#pragma once
#include "core/tile/types.cuh"

namespace flashgpt::tile {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

DEVICE float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats rounded to nearest-even into one register, `low` in the lower half.
template <class E> DEVICE uint32_t pack(float low, float high) {
  uint32_t r;
  if constexpr (E::kIsHalf)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// Accumulators to 16-bit pairs. Two neighbouring blocks of 8 columns are then the A fragment of the next product.
template <class E, int H> DEVICE void pack_all(uint32_t (&p)[H / 2], const float (&s)[H]) {
#pragma unroll
  for (int j = 0; j < H / 2; ++j) p[j] = pack<E>(s[2 * j], s[2 * j + 1]);
}
template <class E> DEVICE float unpack_low(uint32_t v) {
  if constexpr (E::kIsHalf) {
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(r) : "r"(v));
    return r;
  } else {
    return __int_as_float(v << 16);
  }
}
template <class E> DEVICE float unpack_high(uint32_t v) {
  if constexpr (E::kIsHalf) {
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(r) : "r"(v));
    return r;
  } else {
    return __int_as_float(v & 0xffff0000u);
  }
}

// Over the 4 lanes that share a row of an accumulator.
DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

}  // namespace flashgpt::tile
