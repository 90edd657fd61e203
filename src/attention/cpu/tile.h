// The register tile of the CPU kernels, and what else their inner loops are made of.
//
// Lanes are rows of queries (or, for dK and dV, columns of the head): a tile is kRows x 2 registers,
//   c[r][lane] += sum over k of a[r, k] * b[k][lane]
// with a read as scalars from memory as it lies and b as registers. K and V are never transposed, maximum and sum of the softmax need no
// step across lanes, and the causal mask is a comparison of lanes. kRows x 2 accumulators, 2 registers of b and 1 of a fit the sixteen
// registers of AVX2 (6 rows), and are enough to hide the latency of the FMAs on AVX-512 (8 rows).
#pragma once
#include "core/cpu/simd.h"

// Everything here is inlined into a function compiled for the instruction set of W: no vector is ever passed in a call.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace flashgpt::attention::cpu {

using Index = std::int64_t;
using simd::Register;

template <int W> using F = typename Register<W>::F;
template <int W> using I = typename Register<W>::I;
template <int W> struct Unsigned { typedef std::uint32_t type __attribute__((vector_size(W * 4))); };
template <int W> inline constexpr int kGroup = 2 * W;           // lanes of a tile
template <int W> inline constexpr int kRows = W == 16 ? 8 : 6;  // rows of a tile
template <int W> inline constexpr int kBlock =
    W == 16 ? 256 : 144;  // keys whose scores of one group lie in the L1 cache; multiple of kRows

inline constexpr float kLog2e = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

// A function of its own for a kernel's step, compiled for the instruction set of W: GCC 12 loses up to a third of the speed when it
// inlines two tile loops into one function.
template <int W> struct Outlined {
  template <class Step, class... Args> [[gnu::noinline]] static void call(Args... args) { Step::template run<W>(args...); }
};
template <> struct Outlined<8> {
  template <class Step, class... Args> [[gnu::noinline, gnu::target("avx2,fma")]] static void call(Args... args) {
    Step::template run<8>(args...);
  }
};
template <> struct Outlined<16> {
  template <class Step, class... Args>
  [[gnu::noinline, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]] static void call(Args... args) {
    Step::template run<16>(args...);
  }
};

template <int W> [[gnu::always_inline]] inline F<W> load(const float* p) {
  return *reinterpret_cast<const typename Register<W>::Unaligned*>(p);
}
template <int W> [[gnu::always_inline]] inline void store(float* p, const F<W>& x) {
  *reinterpret_cast<typename Register<W>::Unaligned*>(p) = x;
}
template <int W> [[gnu::always_inline]] inline F<W> splat(float x) { return F<W>{} + x; }

// One instruction from memory; written as a vector expression GCC 12 adds zero to x first.
template <int W> [[gnu::always_inline]] inline F<W> broadcast(const float* x) {
  if constexpr (W == 4) {
    return F<W>{*x, *x, *x, *x};
  } else {
    F<W> r;
    asm("vbroadcastss %1, %0" : "=v"(r) : "m"(*x));
    return r;
  }
}

template <int W> [[gnu::always_inline]] inline void fma(F<W>& c, const F<W>& a, const F<W>& b) {
  if constexpr (W == 4)
    c = c + a * b;
  else
    asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));  // v: all 32 registers of AVX-512
}

// max(a, b); b where one of them is a NaN (MAXPS).
template <int W> [[gnu::always_inline]] inline F<W> max_else_b(const F<W>& a, const F<W>& b) {
  F<W> r;
  if constexpr (W == 4) {
    r = a;
    asm("maxps %1, %0" : "+x"(r) : "x"(b));
  } else {
    asm("vmaxps %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
  }
  return r;
}

template <int W> [[gnu::always_inline]] inline bool any(const I<W>& mask) {
  std::int32_t lane[W];
  __builtin_memcpy(lane, &mask, sizeof mask);
  std::int32_t r = 0;
  for (int i = 0; i < W; ++i) r |= lane[i];
  return r != 0;
}

// 2^x for x <= 126: relative error at most 2e-7 (tests/attention/parts_test.cpp); exactly 1 for 0; 0 from -127 down, -inf included; NaN
// for NaN. x = n + r, |r| <= 1/2; the polynomial was fitted for least relative error with its constant term fixed at 1.
template <int W> [[gnu::always_inline]] inline F<W> exp2_of(F<W> x) {
  const F<W> round = splat<W>(12582912.0f);  // 1.5 * 2^23: the low bits of x + round are n
  x = max_else_b<W>(splat<W>(-127.0f), x);
  const F<W> shifted = x + round;
  const F<W> r = x - (shifted - round);
  F<W> p = splat<W>(1.3264727082e-03f);
  constexpr float kPoly[] = {9.6715126490e-03f, 5.5507337436e-02f, 2.4022242085e-01f, 6.9314697760e-01f, 1.0f};
#pragma GCC unroll 8
  for (float c : kPoly) {
    F<W> next = splat<W>(c);
    fma<W>(next, p, r);
    p = next;
  }
  using U = typename Unsigned<W>::type;  // n goes into the exponent; sums wrap
  return reinterpret_cast<F<W>>(reinterpret_cast<U>(p) + (reinterpret_cast<U>(shifted) << 23));
}

// acc[r][n] += sum over k < depth of a[r * a_row + k * a_step] * b[k * b_step + n * W + lane]
template <int W, int Rows> [[gnu::always_inline]] inline void multiply(F<W> (&acc)[Rows][2], const float* a, Index a_row, Index a_step,
                                                                       const float* b, Index b_step, Index depth) {
  for (Index k = 0; k < depth; ++k) {
    const F<W> b0 = load<W>(b), b1 = load<W>(b + W);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const F<W> x = broadcast<W>(a + r * a_row);
      fma<W>(acc[r][0], x, b0);
      fma<W>(acc[r][1], x, b1);
    }
    a += a_step;
    b += b_step;
  }
}

template <int W, int Rows> [[gnu::always_inline]] inline void clear(F<W> (&acc)[Rows][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) acc[r][0] = acc[r][1] = F<W>{};
}
template <int W, int Rows> [[gnu::always_inline]] inline void load_tile(F<W> (&acc)[Rows][2], const float* c, Index c_row) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    acc[r][0] = load<W>(c + r * c_row);
    acc[r][1] = load<W>(c + r * c_row + W);
  }
}
template <int W, int Rows> [[gnu::always_inline]] inline void store_tile(const F<W> (&acc)[Rows][2], float* c, Index c_row) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    store<W>(c + r * c_row, acc[r][0]);
    store<W>(c + r * c_row + W, acc[r][1]);
  }
}

// c[row][lane] += sum over k of a[row + k * a_step] * b[k][lane] for `rows` rows (even): O^T += V^T P^T and dQ^T += K^T dS^T. A row of c is
// one group.
struct AddTransposed {
  template <int W, int Rows>
  [[gnu::always_inline]] static void tile(float* c, const float* a, Index a_step, const float* b, Index b_step, Index depth, bool fresh) {
    F<W> acc[Rows][2];
    if (fresh)
      clear<W, Rows>(acc);
    else
      load_tile<W, Rows>(acc, c, kGroup<W>);
    multiply<W, Rows>(acc, a, 1, a_step, b, b_step, depth);
    store_tile<W, Rows>(acc, c, kGroup<W>);
  }
  template <int W> [[gnu::always_inline]] static void run(float* c, Index rows, const float* a, Index a_step, const float* b, Index b_step,
                                                          Index depth, bool fresh) {
    constexpr int kTile = kRows<W>;
    Index r = 0;
    const bool two_fours = kTile == 6 && rows % 6 == 2 && rows >= 8;  // 8 rows as 4 + 4 rather than 6 + 2
    for (const Index last = two_fours ? rows - 8 : rows; r + kTile <= last; r += kTile)
      tile<W, kTile>(c + r * kGroup<W>, a + r, a_step, b, b_step, depth, fresh);
    for (; r + 4 <= rows; r += 4) tile<W, 4>(c + r * kGroup<W>, a + r, a_step, b, b_step, depth, fresh);
    for (; r + 2 <= rows; r += 2) tile<W, 2>(c + r * kGroup<W>, a + r, a_step, b, b_step, depth, fresh);
  }
};

}  // namespace flashgpt::attention::cpu
