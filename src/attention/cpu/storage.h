// Tensors as the CPU kernels read and write them: fp32, bf16 or fp16 in memory, floats in registers. The kernels convert while they pack,
// so only the leaves that copy rows know the type.
#pragma once
#include "attention/cpu/tile.h"
#include "attention/problem.h"
#include "core/half.h"

namespace flashgpt::attention::cpu {

// A View of unknown type; strides in bytes.
struct Stored {
  char* data = nullptr;
  Index sequence = 0, row = 0, head = 0;
  Dtype dtype = Dtype::kF32;

  explicit operator bool() const { return data != nullptr; }
  char* at(Index b, Index i, Index h) const { return data + b * sequence + i * row + h * head; }
};

inline Stored stored(const Tensor& t, bool varlen) {
  const View<char> v = rows_view<char>(t, varlen);
  const auto size = static_cast<Index>(size_of(t.dtype));
  return {v.data, v.sequence * size, v.row * size, v.head * size, t.dtype};
}
inline Stored stored(const View<float>& v) { return {reinterpret_cast<char*>(v.data), v.sequence * 4, v.row * 4, v.head * 4, Dtype::kF32}; }

template <int W> struct Halves { typedef std::uint16_t type __attribute__((vector_size(W * 2), aligned(2), may_alias)); };

template <int W> [[gnu::always_inline]] inline F<W> load_as(const float* p) { return load<W>(p); }
template <int W> [[gnu::always_inline]] inline F<W> load_as(const Bf16* p) {
  using U = typename Unsigned<W>::type;
  typedef std::uint16_t H __attribute__((vector_size(W * 2)));
  H h;
  __builtin_memcpy(&h, p, sizeof h);  // through a reference of a deduced type the alignment of Halves would be lost
  return reinterpret_cast<F<W>>(__builtin_convertvector(h, U) << 16);
}
// Every processor with AVX2 has these conversions (F16C).
template <int W> [[gnu::always_inline]] inline F<W> load_as(const Fp16* p) {
  F<W> r;
  if constexpr (W == 4)
    for (int i = 0; i < W; ++i) r[i] = static_cast<float>(p[i]);
  else
    asm("vcvtph2ps %1, %0" : "=v"(r) : "m"(*reinterpret_cast<const typename Halves<W>::type*>(p)));
  return r;
}

template <int W> [[gnu::always_inline]] inline void store_as(float* p, const F<W>& x) { store<W>(p, x); }
template <int W> [[gnu::always_inline]] inline void store_as(Bf16* p, const F<W>& x) {
  using U = typename Unsigned<W>::type;
  const U u = reinterpret_cast<U>(x);
  const U rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  const U r = x == x ? rounded : (u >> 16 | 0x40u);
  typedef std::uint16_t H __attribute__((vector_size(W * 2)));
  const H h = __builtin_convertvector(r, H);
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof h);
}
template <int W> [[gnu::always_inline]] inline void store_as(Fp16* p, const F<W>& x) {
  if constexpr (W == 4)
    for (int i = 0; i < W; ++i) p[i] = Fp16(x[i]);
  else
    asm("vcvtps2ph $0, %1, %0" : "=m"(*reinterpret_cast<typename Halves<W>::type*>(p)) : "v"(x));
}

inline void fill_zero(char* row, Dtype dtype, Index columns) {
  __builtin_memset(row, 0, static_cast<std::size_t>(columns) * size_of(dtype));
}

}  // namespace flashgpt::attention::cpu
