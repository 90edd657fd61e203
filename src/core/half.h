// The 16-bit floats as types of the CPU: they are storage, arithmetic is done in float. Rounding is to nearest, ties to even; NaN stays
// NaN, what is too large becomes infinite.
//   bf16   1 sign, 8 exponent, 7 mantissa bits: the upper half of a float        fp16   1, 5, 10 (IEEE 754 half)
#pragma once
#include <bit>
#include <cstdint>

#include "flashgpt/dtype.h"

namespace flashgpt {

constexpr float bf16_to_float(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
constexpr std::uint16_t float_to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(u >> 16 | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

constexpr float fp16_to_float(std::uint16_t x) {
  const std::uint32_t sign = std::uint32_t{x & 0x8000u} << 16, rest = x & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // Exponents are 112 apart; the product does the same for subnormal numbers.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}
constexpr std::uint16_t float_to_fp16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
  if (rest >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and up
  if (rest < 0x38800000u) {                                                    // below 2^-14: multiples of 2^-24
    const float shifted = std::bit_cast<float>(rest) + 0.5f;                   // an ulp of 0.5 is 2^-24: the sum rounds
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<std::uint16_t>(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
}

struct Bf16 {
  std::uint16_t bits;
  Bf16() = default;
  constexpr explicit Bf16(float x) : bits(float_to_bf16(x)) {}
  constexpr operator float() const { return bf16_to_float(bits); }
};
struct Fp16 {
  std::uint16_t bits;
  Fp16() = default;
  constexpr explicit Fp16(float x) : bits(float_to_fp16(x)) {}
  constexpr operator float() const { return fp16_to_float(bits); }
};
template <> struct DtypeOf<Bf16> { static constexpr Dtype value = Dtype::kBF16; };
template <> struct DtypeOf<Fp16> { static constexpr Dtype value = Dtype::kF16; };

}  // namespace flashgpt
