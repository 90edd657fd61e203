// exp, the normal distribution and sine with cosine on sixteen lanes (core/cpu/simd.h). Largest relative errors against double, measured
// over the whole range in tests/core/simd_math_test.cpp: exp 2e-7 (results below the normal numbers are 0), normal_cdf 4e-7 in [-1, inf)
// and 2e-6 down to -6, sine and cosine 3e-7 absolute for any position.
#pragma once
#include "core/cpu/simd.h"

namespace flashgpt::simd {

// Sum of c[i] x^i for i in [First, First + Count), by halves (Estrin): half the latency of Horner's rule, which is what a row of sixteen
// waits for. x2, x4, x8 are the powers of x.
template <int W, int First, int Count, int N> [[gnu::always_inline]] inline Vec<W> polynomial_part(const Vec<W>& x, const Vec<W>& x2,
                                                                                                   const Vec<W>& x4, const Vec<W>& x8,
                                                                                                   const float (&c)[N]) {
  if constexpr (Count == 1) {
    return splat<W>(c[First]);
  } else if constexpr (Count == 2) {
    return splat<W>(c[First]) + splat<W>(c[First + 1]) * x;
  } else {
    constexpr int kHalf = Count > 8 ? 8 : Count > 4 ? 4 : 2;
    return polynomial_part<W, First, kHalf>(x, x2, x4, x8, c) +
           polynomial_part<W, First + kHalf, Count - kHalf>(x, x2, x4, x8, c) * (kHalf == 8   ? x8
                                                                                 : kHalf == 4 ? x4
                                                                                              : x2);
  }
}
template <int W, int N> [[gnu::always_inline]] inline Vec<W> polynomial(const Vec<W>& x, const float (&c)[N]) {
  static_assert(N <= 16);
  const Vec<W> x2 = x * x, x4 = x2 * x2, x8 = x4 * x4;
  return polynomial_part<W, 0, N>(x, x2, x4, x8, c);
}

inline constexpr float kExpLow = -87.33f, kExpHigh = 88.37f;  // where results leave the normal numbers, and where 2^n does

// e^x = 2^n e^r for x in [kExpLow, kExpHigh] (or NaN), with n = round(x / ln 2), |r| <= ln 2 / 2; the polynomial is that of Cephes
// (Moshier).
template <int W> [[gnu::always_inline]] inline Vec<W> exp_in_range(const Vec<W>& x) {
  constexpr float kPoly[] = {5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f};
  constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const Vec<W> round = splat<W>(12582912.0f + 127.0f);  // 1.5 * 2^23 + 127: the low bits of `shifted` are n + 127
  const Vec<W> shifted = x * splat<W>(kLog2e) + round;
  const Vec<W> n = shifted - round;
  const Vec<W> r = (x - n * splat<W>(kLn2High)) - n * splat<W>(kLn2Low);
  const Vec<W> p = polynomial<W>(r, kPoly) * (r * r) + (r + splat<W>(1.0f));
  Vec<W> y;
#pragma GCC unroll 4
  for (int i = 0; i < Vec<W>::kParts; ++i)
    y.v[i] = p.v[i] * reinterpret_cast<typename Register<W>::F>(reinterpret_cast<typename Register<W>::I>(shifted.v[i]) << 23);
  return y;
}

// e^x; 0 below kExpLow and for -inf, inf above kExpHigh, NaN for NaN.
template <int W> [[gnu::always_inline]] inline Vec<W> exp(const Vec<W>& x) {
  const Vec<W> low = splat<W>(kExpLow), high = splat<W>(kExpHigh);
  const Vec<W> y = exp_in_range<W>(at_most(at_least(x, low), high));
  return select(x < low, splat<W>(0.0f), select(high < x, splat<W>(__builtin_inff()), y));
}

// P(Z <= x) of the normal distribution, with accurate small tails: e^(-z^2/2) g(z), z = |x|, where g is a polynomial in 1 / (1 + 0.35 z),
// fitted at Chebyshev points of z in [0, 14]. `density` gets e^(-z^2/2), which the derivative needs.
template <int W> [[gnu::always_inline]] inline Vec<W> normal_cdf(const Vec<W>& x, Vec<W>& density) {
  constexpr float kPoly[] = {2.5324427936e-01f,  3.4299153750e-01f, 2.8439538939e-01f, 8.1875630226e-02f, -8.1733625968e-02f,
                             -5.6223734021e-02f, 4.4192523699e-02f, 2.7827742272e-02f, -2.9679522001e-02f};
  const Vec<W> zero = splat<W>(0.0f), one = splat<W>(1.0f);
  const Vec<W> z = at_most(select(x < zero, zero - x, x), splat<W>(13.2f));  // e^(-z^2/2) just above kExpLow
  density = exp_in_range<W>(z * z * splat<W>(-0.5f));
  const Vec<W> t = one / (one + splat<W>(0.35f) * z);
  const Vec<W> tail = density * t * polynomial<W>(t - splat<W>(0.5f), kPoly);
  return select(x < zero, tail, one - tail);
}

// Sine and cosine of position * frequency. The angle is reduced in double: in fp32 a position of 100 000 would be off by 0.004 already.
template <int W> [[gnu::always_inline]] inline void sine_cosine(double position, const Vec<W>& frequency, Vec<W>& sine, Vec<W>& cosine) {
  constexpr float kSin[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
  constexpr float kCos[] = {4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f};
  constexpr double kTwoOverPi = 0.63661977236758134308, kRound = 6755399441055744.0;  // 1.5 * 2^52
  const VecD<W> wide = to_double<W>(frequency);
  float fraction_of[kLanes], quarter_of[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < VecD<W>::kParts; ++i) {
    const typename Register<W>::D turns = wide.v[i] * position * kTwoOverPi;  // in quarter turns
    const typename Register<W>::D whole = (turns + kRound) - kRound;
    const typename Register<W>::D circle = (whole * 0.25 + kRound) - kRound;
    const typename Register<W>::Half fraction = __builtin_convertvector(turns - whole, typename Register<W>::Half);
    const typename Register<W>::Half quarter = __builtin_convertvector(whole - circle * 4.0, typename Register<W>::Half);
    __builtin_memcpy(fraction_of + i * (W / 2), &fraction, sizeof fraction);
    __builtin_memcpy(quarter_of + i * (W / 2), &quarter, sizeof quarter);
  }
  const Vec<W> r = load<W>(fraction_of) * splat<W>(1.57079632679489662f), quarter = load<W>(quarter_of);  // quarter in [-2, 2]
  const Vec<W> zero = splat<W>(0.0f), one = splat<W>(1.0f), square = r * r;
  const Vec<W> s = r + r * square * polynomial<W>(square, kSin);
  const Vec<W> c = one - square * splat<W>(0.5f) + square * square * polynomial<W>(square, kCos);
  const Vec<W> size = select(quarter < zero, zero - quarter, quarter);
  const VecI<W> odd = size == one, half_turn = one < size;
  sine = select(odd, c, s);
  cosine = select(odd, s, c);
  sine = select(quarter == zero - one, zero - sine, select(half_turn, zero - sine, sine));
  cosine = select(quarter == one, zero - cosine, select(half_turn, zero - cosine, cosine));
}

}  // namespace flashgpt::simd
