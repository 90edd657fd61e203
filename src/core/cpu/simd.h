// Sixteen floats at a time, the same arithmetic on every x86-64: one register of AVX-512, two of AVX2 or four of SSE2. No fused
// multiply-add, and sums run over the same sixteen lanes everywhere, so an op gives the same bits whatever the instruction set.
//
// A kernel is a struct with   template <int W> [[gnu::always_inline]] void run(args...) const   written with Vec<W> and helpers that are
// always_inline themselves; call(isa, kernel, args...) runs the instance of that instruction set: the only functions with a target of
// their own, so wider code cannot leak into what the rest of the program shares.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace flashgpt::simd {

inline constexpr int kLanes = 16;

// The instruction set in use: that of cpu_target(), until a test asks for another one. Returns the one before.
Isa isa();
Isa use_isa(Isa isa);

// W: floats in a register (4, 8, 16).
template <int W> struct Register {
  typedef float F __attribute__((vector_size(W * 4)));
  typedef double D __attribute__((vector_size(W * 4)));
  typedef float Half __attribute__((vector_size(W * 2)));
  typedef std::int32_t I __attribute__((vector_size(W * 4)));
  typedef float Unaligned __attribute__((vector_size(W * 4), aligned(4), may_alias));
  typedef float UnalignedHalf __attribute__((vector_size(W * 2), aligned(4), may_alias));
};

template <int W> struct Vec {
  static constexpr int kParts = kLanes / W;
  typename Register<W>::F v[kParts];
};

template <int W> struct VecI {  // int32 lanes, or the masks that comparisons give: all ones or zero
  static constexpr int kParts = kLanes / W;
  typename Register<W>::I v[kParts];
};

template <int W> struct VecD {  // sixteen doubles
  static constexpr int kParts = 2 * kLanes / W;
  typename Register<W>::D v[kParts];
};

template <int W> [[gnu::always_inline]] inline Vec<W> load(const float* p) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = *reinterpret_cast<const typename Register<W>::Unaligned*>(p + i * W);
  return r;
}

template <int W> [[gnu::always_inline]] inline void store(float* p, const Vec<W>& a) {
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) *reinterpret_cast<typename Register<W>::Unaligned*>(p + i * W) = a.v[i];
}

template <int W> [[gnu::always_inline]] inline Vec<W> splat(float x) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = typename Register<W>::F{} + x;
  return r;
}

// The first n < 16 floats; the other lanes are `fill`, and are not written.
template <int W> [[gnu::always_inline]] inline Vec<W> load_first(const float* p, std::int64_t n, float fill = 0.0f) {
  float buffer[kLanes];
  for (int i = 0; i < kLanes; ++i) buffer[i] = i < n ? p[i] : fill;
  return load<W>(buffer);
}
template <int W> [[gnu::always_inline]] inline void store_first(float* p, const Vec<W>& a, std::int64_t n) {
  float buffer[kLanes];
  store<W>(buffer, a);
  for (std::int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

// Loads and stores of 16 lanes, or of the n that are left at the end of a row.
template <int W> [[gnu::always_inline]] inline Vec<W> load_upto(const float* p, std::int64_t n, float fill = 0.0f) {
  return n >= kLanes ? load<W>(p) : load_first<W>(p, n, fill);
}
template <int W> [[gnu::always_inline]] inline void store_upto(float* p, const Vec<W>& a, std::int64_t n) {
  if (n >= kLanes)
    store<W>(p, a);
  else
    store_first<W>(p, a, n);
}

template <int W> [[gnu::always_inline]] inline Vec<W> operator+(const Vec<W>& a, const Vec<W>& b) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = a.v[i] + b.v[i];
  return r;
}
template <int W> [[gnu::always_inline]] inline Vec<W> operator-(const Vec<W>& a, const Vec<W>& b) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = a.v[i] - b.v[i];
  return r;
}
template <int W> [[gnu::always_inline]] inline Vec<W> operator*(const Vec<W>& a, const Vec<W>& b) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = a.v[i] * b.v[i];
  return r;
}
template <int W> [[gnu::always_inline]] inline Vec<W> operator/(const Vec<W>& a, const Vec<W>& b) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = a.v[i] / b.v[i];
  return r;
}
template <int W> [[gnu::always_inline]] inline VecI<W> operator<(const Vec<W>& a, const Vec<W>& b) {
  VecI<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = a.v[i] < b.v[i];
  return r;
}
template <int W> [[gnu::always_inline]] inline VecI<W> operator==(const Vec<W>& a, const Vec<W>& b) {
  VecI<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = a.v[i] == b.v[i];
  return r;
}
template <int W> [[gnu::always_inline]] inline Vec<W> select(const VecI<W>& mask, const Vec<W>& yes, const Vec<W>& no) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) r.v[i] = mask.v[i] ? yes.v[i] : no.v[i];
  return r;
}
// low when x < low, else x: a NaN in x stays, since MAXPS gives its second source then. In assembly because GCC makes a comparison and a
// blend of the ternary when an operand is a constant; the constraint sees to the registers.
template <int W> [[gnu::always_inline]] inline Vec<W> at_least(const Vec<W>& x, const Vec<W>& low) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) {
    if constexpr (W == 4) {
      r.v[i] = low.v[i];
      asm("maxps %1, %0" : "+x"(r.v[i]) : "x"(x.v[i]));
    } else {
      asm("vmaxps %2, %1, %0" : "=x"(r.v[i]) : "x"(low.v[i]), "x"(x.v[i]));
    }
  }
  return r;
}
template <int W> [[gnu::always_inline]] inline Vec<W> at_most(const Vec<W>& x, const Vec<W>& high) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) {
    if constexpr (W == 4) {
      r.v[i] = high.v[i];
      asm("minps %1, %0" : "+x"(r.v[i]) : "x"(x.v[i]));
    } else {
      asm("vminps %2, %1, %0" : "=x"(r.v[i]) : "x"(high.v[i]), "x"(x.v[i]));
    }
  }
  return r;
}

// Correctly rounded. GCC has no operator for it on vectors.
template <int W> [[gnu::always_inline]] inline Vec<W> sqrt(const Vec<W>& a) {
  Vec<W> r;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i) {
    if constexpr (W == 4)
      asm("sqrtps %1, %0" : "=x"(r.v[i]) : "x"(a.v[i]));
    else
      asm("vsqrtps %1, %0" : "=x"(r.v[i]) : "x"(a.v[i]));
  }
  return r;
}

// Floats of memory as doubles. One instruction for each part, where GCC 12 makes four of __builtin_convertvector.
template <int W> [[gnu::always_inline]] inline VecD<W> load_double(const float* p) {
  VecD<W> r;
#pragma GCC unroll 8
  for (int i = 0; i < VecD<W>::kParts; ++i) {
    const auto& half = *reinterpret_cast<const typename Register<W>::UnalignedHalf*>(p + i * (W / 2));
    if constexpr (W == 4)
      asm("cvtps2pd %1, %0" : "=x"(r.v[i]) : "m"(half));
    else
      asm("vcvtps2pd %1, %0" : "=x"(r.v[i]) : "m"(half));
  }
  return r;
}
template <int W> [[gnu::always_inline]] inline VecD<W> to_double(const Vec<W>& a) {
  float lane[kLanes];
  store<W>(lane, a);
  return load_double<W>(lane);
}
template <int W> [[gnu::always_inline]] inline VecD<W> splat_double(double x) {
  VecD<W> r;
#pragma GCC unroll 8
  for (int i = 0; i < VecD<W>::kParts; ++i) r.v[i] = typename Register<W>::D{} + x;
  return r;
}
template <int W> [[gnu::always_inline]] inline VecD<W> operator+(const VecD<W>& a, const VecD<W>& b) {
  VecD<W> r;
#pragma GCC unroll 8
  for (int i = 0; i < VecD<W>::kParts; ++i) r.v[i] = a.v[i] + b.v[i];
  return r;
}
template <int W> [[gnu::always_inline]] inline VecD<W> operator*(const VecD<W>& a, const VecD<W>& b) {
  VecD<W> r;
#pragma GCC unroll 8
  for (int i = 0; i < VecD<W>::kParts; ++i) r.v[i] = a.v[i] * b.v[i];
  return r;
}

// Sum of the lanes by halves: (0 + 8), (1 + 9), ... then 4, 2, 1.
template <class T> [[gnu::always_inline]] inline T sum_lanes(T (&lane)[kLanes]) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}
template <int W> [[gnu::always_inline]] inline float sum(const Vec<W>& a) {
  float lane[kLanes];
  store<W>(lane, a);
  return sum_lanes(lane);
}
template <int W> [[gnu::always_inline]] inline double sum(const VecD<W>& a) {
  double lane[kLanes];
  __builtin_memcpy(lane, &a, sizeof lane);
  return sum_lanes(lane);
}
template <int W> [[gnu::always_inline]] inline float largest(const Vec<W>& a) {
  float lane[kLanes];
  store<W>(lane, a);
  float m = lane[0];
  for (float x : lane) m = x > m ? x : m;
  return m;
}

template <class Kernel, class... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]] void call_avx512(const Kernel& kernel, Args... args) {
  kernel.template run<16>(args...);
}
template <class Kernel, class... Args> [[gnu::target("avx2,fma")]] void call_avx2(const Kernel& kernel, Args... args) {
  kernel.template run<8>(args...);
}
template <class Kernel, class... Args> void call_portable(const Kernel& kernel, Args... args) { kernel.template run<4>(args...); }

template <class Kernel, class... Args> void call(Isa isa, const Kernel& kernel, Args... args) {
  switch (isa) {
    case Isa::kAvx512: return call_avx512(kernel, args...);
    case Isa::kAvx2: return call_avx2(kernel, args...);
    case Isa::kPortable: return call_portable(kernel, args...);
  }
}

}  // namespace flashgpt::simd
