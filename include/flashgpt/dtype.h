// Element types of tensors, their sizes and their names in messages and files.
#pragma once
#include <cstddef>
#include <cstdint>

namespace flashgpt {

enum class Dtype : std::uint8_t { kF32, kBF16, kF16, kF64, kI64, kI32, kU8 };

constexpr std::size_t size_of(Dtype t) {
  switch (t) {
    case Dtype::kF64:
    case Dtype::kI64: return 8;
    case Dtype::kF32:
    case Dtype::kI32: return 4;
    case Dtype::kBF16:
    case Dtype::kF16: return 2;
    case Dtype::kU8: return 1;
  }
  return 0;
}

constexpr const char* name_of(Dtype t) {
  switch (t) {
    case Dtype::kF32: return "fp32";
    case Dtype::kBF16: return "bf16";
    case Dtype::kF16: return "fp16";
    case Dtype::kF64: return "fp64";
    case Dtype::kI64: return "int64";
    case Dtype::kI32: return "int32";
    case Dtype::kU8: return "uint8";
  }
  return "?";
}

// C++ type -> Dtype; the 16-bit floats have no C++20 type and are read as raw std::uint16_t through Tensor::raw().
template <class T> struct DtypeOf;
template <> struct DtypeOf<float> { static constexpr Dtype value = Dtype::kF32; };
template <> struct DtypeOf<double> { static constexpr Dtype value = Dtype::kF64; };
template <> struct DtypeOf<std::int32_t> { static constexpr Dtype value = Dtype::kI32; };
template <> struct DtypeOf<std::int64_t> { static constexpr Dtype value = Dtype::kI64; };
template <> struct DtypeOf<std::uint8_t> { static constexpr Dtype value = Dtype::kU8; };

}  // namespace flashgpt
