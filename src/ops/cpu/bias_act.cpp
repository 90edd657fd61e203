// Bias and activation on the CPU: one pass over memory, as fast as memory; exp and the normal distribution from core/cpu/simd_math.h.
#include "ops/bias_act.h"

#include "core/cpu/simd_math.h"
#include "ops/check.h"
#include "ops/cpu/token_sum.h"

namespace flashgpt {
namespace {

using namespace simd;
using Index = std::int64_t;

constexpr float kTwoRootTwoOverPi = 1.59576912f;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715f;
constexpr float kInverseRootTwoPi = 0.39894228f;
constexpr float kFlat = 1e4f;  // beyond +-1e4 every activation is 0 or z itself; keeps squares and cubes finite

// e^a with |a| kept below 87, so that sigmoid(-a) = 1 / (1 + e^a) and 1 - sigmoid are both accurate and finite.
template <int W> [[gnu::always_inline]] inline Vec<W> exp_clamped(const Vec<W>& a) {
  return exp_in_range<W>(at_most(at_least(a, splat<W>(-87.0f)), splat<W>(87.0f)));
}

// -2 sqrt(2 / pi) (z + 0.044715 z^3)
template <int W> [[gnu::always_inline]] inline Vec<W> gelu_exponent(const Vec<W>& z, const Vec<W>& square) {
  return z * (splat<W>(-kTwoRootTwoOverPi) - splat<W>(kTwoRootTwoOverPi * kCubic) * square);
}

template <int W> [[gnu::always_inline]] inline Vec<W> clamp_flat(const Vec<W>& z) {
  return at_most(at_least(z, splat<W>(-kFlat)), splat<W>(kFlat));
}

// 1 + tanh(a) = 2 sigmoid(2a): no cancellation for negative z. The smallest value of s, about e^-87, times any
// negative z must vanish.
template <int W> [[gnu::always_inline]] inline Vec<W> times_sigmoid(const Vec<W>& z, const Vec<W>& s) {
  return at_least(z, splat<W>(-kFlat)) * s;
}

template <int W, Activation A> [[gnu::always_inline]] inline Vec<W> activate(const Vec<W>& z) {
  const Vec<W> one = splat<W>(1.0f);
  if constexpr (A == Activation::kGeluTanh) {
    return times_sigmoid<W>(z, one / (one + exp_clamped<W>(gelu_exponent<W>(z, z * z))));
  } else if constexpr (A == Activation::kGelu) {
    Vec<W> density;
    return times_sigmoid<W>(z, normal_cdf<W>(z, density));
  } else if constexpr (A == Activation::kSwiGlu) {  // of the gate
    return times_sigmoid<W>(z, one / (one + exp_clamped<W>(splat<W>(0.0f) - z)));
  } else {
    return z;
  }
}

// The derivative; `value` gets the activation itself.
template <int W, Activation A> [[gnu::always_inline]] inline Vec<W> derivative(const Vec<W>& z, Vec<W>& value) {
  const Vec<W> one = splat<W>(1.0f), f = clamp_flat<W>(z);
  if constexpr (A == Activation::kGeluTanh) {
    const Vec<W> square = f * f;
    const Vec<W> e = exp_clamped<W>(gelu_exponent<W>(f, square)), s = one / (one + e);
    const Vec<W> slope = splat<W>(kTwoRootTwoOverPi) + splat<W>(kTwoRootTwoOverPi * 3.0f * kCubic) * square;
    value = times_sigmoid<W>(z, s);
    return s + f * slope * s * (e * s);
  } else if constexpr (A == Activation::kGelu) {
    Vec<W> density;
    const Vec<W> cdf = normal_cdf<W>(z, density);
    value = times_sigmoid<W>(z, cdf);
    return cdf + f * density * splat<W>(kInverseRootTwoPi);
  } else if constexpr (A == Activation::kSwiGlu) {
    const Vec<W> e = exp_clamped<W>(splat<W>(0.0f) - z), s = one / (one + e);
    value = times_sigmoid<W>(z, s);
    return s + f * s * (e * s);
  } else {
    value = z;
    return one;
  }
}

template <Activation A> struct Forward {
  float* y;
  const float *x, *bias;
  Index columns;  // of y

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    constexpr bool kGated = A == Activation::kSwiGlu;
    for (Index n = first; n < last; ++n) {
      const float* in = x + n * columns * (kGated ? 2 : 1);
      float* out = y + n * columns;
      for (Index c = 0; c < columns; c += kLanes) {
        const Index left = columns - c;
        Vec<W> z = load_upto<W>(in + c, left);
        if (bias) z = z + load_upto<W>(bias + c, left);
        Vec<W> r = activate<W, A>(z);
        if constexpr (kGated) {
          Vec<W> up = load_upto<W>(in + columns + c, left);
          if (bias) up = up + load_upto<W>(bias + columns + c, left);
          r = r * up;
        }
        store_upto<W>(out + c, r, left);
      }
    }
  }
};

template <int W> [[gnu::always_inline]] inline void accumulate(float* to, const Vec<W>& a, Index left) {
  store_upto<W>(to, load_upto<W>(to, left) + a, left);
}

template <Activation A> struct Backward {
  float *dx, *partial;  // partial: null when the bias wants no gradient
  const float *dy, *x, *bias;
  Index columns;  // of dy

  template <int W> [[gnu::always_inline]] void run(Index block, Index first, Index last) const {
    constexpr bool kGated = A == Activation::kSwiGlu;
    const Index wide = columns * (kGated ? 2 : 1);
    float* sum = partial ? partial + block * wide : nullptr;
    if (sum)
      for (Index i = 0; i < wide; ++i) sum[i] = 0.0f;
    for (Index n = first; n < last; ++n) {
      const float* d = dy + n * columns;
      const float* in = A == Activation::kNone ? nullptr : x + n * wide;
      float* out = dx + n * wide;
      for (Index c = 0; c < columns; c += kLanes) {
        const Index left = columns - c;
        const Vec<W> grad = load_upto<W>(d + c, left);
        if constexpr (A == Activation::kNone) {
          if (out != d) store_upto<W>(out + c, grad, left);
          if (sum) accumulate<W>(sum + c, grad, left);
        } else {
          Vec<W> z = load_upto<W>(in + c, left), value;
          if (bias) z = z + load_upto<W>(bias + c, left);
          Vec<W> dz = derivative<W, A>(z, value) * grad;
          if constexpr (kGated) {
            Vec<W> up = load_upto<W>(in + columns + c, left);
            if (bias) up = up + load_upto<W>(bias + columns + c, left);
            dz = dz * up;
            const Vec<W> dup = value * grad;
            store_upto<W>(out + columns + c, dup, left);
            if (sum) accumulate<W>(sum + columns + c, dup, left);
          }
          store_upto<W>(out + c, dz, left);
          if (sum) accumulate<W>(sum + c, dz, left);
        }
      }
    }
  }
};

template <class F> void with_activation(Activation a, F f) {
  switch (a) {
    case Activation::kNone: return f(std::integral_constant<Activation, Activation::kNone>{});
    case Activation::kGeluTanh: return f(std::integral_constant<Activation, Activation::kGeluTanh>{});
    case Activation::kGelu: return f(std::integral_constant<Activation, Activation::kGelu>{});
    case Activation::kSwiGlu: return f(std::integral_constant<Activation, Activation::kSwiGlu>{});
  }
}

Index width_of(Activation a) { return a == Activation::kSwiGlu ? 2 : 1; }

}  // namespace

void check(const BiasAct& op) {
  constexpr const char* kOp = BiasAct::kName;
  expect_rank(kOp, "y", op.y, 2);
  const Index n = op.y.dim(0), f = op.y.dim(1), wide = f * width_of(op.activation);
  expect(kOp, "y", op.y, {n, f});
  expect(kOp, "x", op.x, {n, wide});
  expect_if_given(kOp, "bias", op.bias, {wide});
  require(op.activation != Activation::kSwiGlu || op.y.data != op.x.data || op.y.numel() == 0, kOp,
          ": y is x's memory, which SwiGLU cannot do");
}

void launch(CpuStream s, const BiasAct& op, Scratch) {
  const Index n = op.y.dim(0), f = op.y.dim(1);
  if (n * f == 0) return;
  if (op.activation == Activation::kNone && !op.bias && op.y.data == op.x.data) return;
  with_activation(op.activation, [&](auto a) {
    const Forward<decltype(a)::value> kernel{op.y.as<float>(), op.x.as<float>(), data_or_null<float>(op.bias), f};
    const Index rows = rows_of_task(f);
    s.pool.parallel_for((n + rows - 1) / rows, [&](Index task, int) { call(isa(), kernel, task * rows, std::min(n, (task + 1) * rows)); });
  });
}

void check(const BiasActGrad& op) {
  constexpr const char* kOp = BiasActGrad::kName;
  expect_rank(kOp, "dy", op.dy, 2);
  const Index n = op.dy.dim(0), f = op.dy.dim(1), wide = f * width_of(op.activation);
  expect(kOp, "dy", op.dy, {n, f});
  expect(kOp, "dx", op.dx, {n, wide});
  if (op.activation != Activation::kNone) expect(kOp, "x", op.x, {n, wide});
  expect_if_given(kOp, "bias", op.bias, {wide});
  expect_if_given(kOp, "dbias", op.dbias, {wide});
  require(op.activation != Activation::kSwiGlu || op.dx.data != op.dy.data || op.dy.numel() == 0, kOp,
          ": dx is dy's memory, which SwiGLU cannot do");
}

std::size_t scratch_bytes(const Target&, const BiasActGrad& op) {
  return given(op.dbias) ? static_cast<std::size_t>(token_blocks(op.dy.dim(0)).count * op.dbias.dim(0)) * sizeof(float) : 0;
}

void launch(CpuStream s, const BiasActGrad& op, Scratch scratch) {
  const Index n = op.dy.dim(0), f = op.dy.dim(1);
  if (n * f == 0) return;
  if (op.activation == Activation::kNone && !op.dbias && op.dx.data == op.dy.data) return;
  const TokenBlocks blocks = token_blocks(n);
  float* partial = op.dbias ? static_cast<float*>(scratch.data) : nullptr;
  with_activation(op.activation, [&](auto a) {
    const Backward<decltype(a)::value> kernel{
        op.dx.as<float>(), partial, op.dy.as<float>(), data_or_null<float>(op.x), data_or_null<float>(op.bias), f};
    s.pool.parallel_for(blocks.count,
                        [&](Index block, int) { call(isa(), kernel, block, block * blocks.rows, std::min(n, (block + 1) * blocks.rows)); });
  });
  if (partial) add_partials(s, partial, blocks.count, op.dbias.dim(0), op.dbias.dim(0), op.dbias.as<float>());
}

}  // namespace flashgpt
