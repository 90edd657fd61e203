// Runs an attention problem through an implementation and through the double reference. Outputs and scratch are full of NaN before, rows
// lie in wider rows with NaN between them, scratch is guarded: whatever is not written, or read where it should not be, shows.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/blocks.h"
#include "attention/implementations.h"
#include "core/cpu/simd.h"
#include "core/half.h"
#include "on_gpu.h"

namespace flashgpt::attention::testing {

inline const float kNan = std::numeric_limits<float>::quiet_NaN();
inline const float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::string name;
  AttentionSpec spec;               // batch, max, total are filled from the lengths below where those are given
  std::vector<int> lens_q, lens_k;  // varlen
  int empty_tail = 0;               // varlen: sequences of no tokens behind the last
  int tail_q = 0, tail_k = 0;       // varlen: tokens that belong to no sequence
  std::vector<int> used_q, used_k;  // seqused
  float q_scale = 1, k_scale = 1, v_scale = 1;
  bool slopes = true;  // with spec.alibi: give them
  bool slopes_per_batch = false;
  bool dlse = false;
  std::int64_t seed = 42, offset = 3;                       // of dropout
  std::function<OwnedBlocks(const AttentionSpec&)> blocks;  // with spec.block_mask
  bool padded_rows = true;                                  // rows of q, k, v wider than heads * head_dim
  double tolerance = 6e-6;
};

inline AttentionSpec dense(std::int64_t batch, std::int64_t q, std::int64_t k, std::int64_t heads, std::int64_t kv_heads, std::int64_t d,
                           bool causal = false) {
  AttentionSpec s;
  s.batch = batch, s.max_q = q, s.max_k = k, s.heads = heads, s.kv_heads = kv_heads, s.head_dim = s.v_head_dim = d, s.causal = causal;
  return s;
}

template <class T> T nan_of() {
  if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, Fp16>)
    return std::bit_cast<T>(std::uint16_t{0x7fff});
  else
    return std::numeric_limits<T>::quiet_NaN();
}
// What lse is stored as beside tensors of T.
template <class T> using LseOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline double load_as_double(const Tensor& t, std::int64_t o) {
  switch (t.dtype) {
    case Dtype::kF64: return static_cast<double*>(t.data)[o];
    case Dtype::kBF16: return static_cast<double>(static_cast<float>(static_cast<Bf16*>(t.data)[o]));
    case Dtype::kF16: return static_cast<double>(static_cast<float>(static_cast<Fp16*>(t.data)[o]));
    default: return static_cast<double>(static_cast<float*>(t.data)[o]);
  }
}
inline void store_float(const Tensor& t, std::int64_t o, float x) {
  switch (t.dtype) {
    case Dtype::kF64: static_cast<double*>(t.data)[o] = static_cast<double>(x); return;
    case Dtype::kBF16: static_cast<Bf16*>(t.data)[o] = Bf16(x); return;
    case Dtype::kF16: static_cast<Fp16*>(t.data)[o] = Fp16(x); return;
    default: static_cast<float*>(t.data)[o] = x;
  }
}

// Memory of a problem as T; tensors of rows have `gap` elements of NaN behind each token.
template <class T> struct Buffers {
  std::vector<std::unique_ptr<std::vector<T>>> owned;
  Tensor make(Shape shape, int gap, T value) {
    std::int64_t row = shape[-1] * (shape.rank >= 3 ? shape[-2] : 1), rows = shape.numel() / std::max<std::int64_t>(1, row);
    owned.push_back(std::make_unique<std::vector<T>>(static_cast<std::size_t>(rows * (row + gap) + 1), value));
    Tensor t(owned.back()->data(), shape, DtypeOf<T>::value);
    if (gap > 0) {  // token stride row + gap
      t.strides[shape.rank - 3] = row + gap;
      if (shape.rank == 4) t.strides[0] = (row + gap) * shape[1];
    }
    return t;
  }
};

template <class F> void each(const Tensor& t, F&& f) {
  std::int64_t at[kMaxRank] = {};
  for (std::int64_t n = 0; n < t.numel(); ++n) {
    std::int64_t offset = 0;
    for (int d = 0; d < t.rank(); ++d) offset += at[d] * t.strides[d];
    f(n, offset);
    for (int d = t.rank() - 1; d >= 0 && ++at[d] == t.shape[d]; --d) at[d] = 0;
  }
}

inline std::vector<double> values(const Tensor& t) {
  std::vector<double> v(static_cast<std::size_t>(t.numel()));
  each(t, [&](std::int64_t n, std::int64_t o) { v[static_cast<std::size_t>(n)] = load_as_double(t, o); });
  return v;
}

template <class T> struct Ops {
  Buffers<T> memory;
  Buffers<LseOf<T>> lse_memory;  // sink, too
  std::vector<std::int32_t> cu_q, cu_k, used_q, used_k;
  std::vector<float> slopes;
  std::vector<std::int64_t> dropout_state;
  OwnedBlocks blocks, key_blocks;
  Forward forward;
  Backward backward;
};

// rounded: to numbers of this type, whatever the tensor's own.
inline void fill_normal(const Tensor& t, std::mt19937& rng, float scale, Dtype rounded = Dtype::kF32) {
  std::normal_distribution<float> d(0.0f, scale);
  each(t, [&](std::int64_t, std::int64_t o) {
    const float x = d(rng);
    store_float(t, o, rounded == Dtype::kBF16 ? static_cast<float>(Bf16(x)) : rounded == Dtype::kF16 ? static_cast<float>(Fp16(x)) : x);
  });
}

inline AttentionSpec spec_of(const Case& c) {
  AttentionSpec s = c.spec;
  s.varlen = !c.lens_q.empty();
  if (!s.varlen) return s;
  s.batch = static_cast<std::int64_t>(c.lens_q.size()) + c.empty_tail;
  s.total_q = c.tail_q, s.total_k = c.tail_k, s.max_q = s.max_k = 0;
  for (int n : c.lens_q) s.total_q += n, s.max_q = std::max<std::int64_t>(s.max_q, n);
  for (int n : c.lens_k) s.total_k += n, s.max_k = std::max<std::int64_t>(s.max_k, n);
  return s;
}

inline std::vector<std::int32_t> cumulative(const std::vector<int>& lens, int empty_tail) {
  std::vector<std::int32_t> cu{0};
  for (int n : lens) cu.push_back(cu.back() + n);
  for (int i = 0; i < empty_tail; ++i) cu.push_back(cu.back());
  return cu;
}

// Inputs are the same numbers for every T.
template <class T> void build(const Case& c, unsigned seed, Ops<T>& ops) {
  const AttentionSpec s = spec_of(c);
  std::mt19937 rng(seed);
  auto rows = [&](bool queries, std::int64_t heads, std::int64_t d) {
    return s.varlen ? Shape{queries ? s.total_q : s.total_k, heads, d} : Shape{s.batch, queries ? s.max_q : s.max_k, heads, d};
  };
  const Shape lse = s.varlen ? Shape{s.heads, s.total_q} : Shape{s.batch, s.heads, s.max_q};
  const T nan = nan_of<T>();
  const LseOf<T> wide_nan = nan_of<LseOf<T>>();
  const int gap = c.padded_rows ? 24 : 0;
  auto& m = ops.memory;
  auto input = [&](Shape shape, float scale) {
    Tensor t = m.make(shape, gap, nan);
    fill_normal(t, rng, scale, s.dtype);
    return t;
  };
  Forward& f = ops.forward;
  Backward& b = ops.backward;
  f.spec = b.spec = s;
  f.q = b.q = input(rows(true, s.heads, s.head_dim), c.q_scale);
  f.k = b.k = input(rows(false, s.kv_heads, s.head_dim), c.k_scale);
  f.v = b.v = input(rows(false, s.kv_heads, s.v_head_dim), c.v_scale);
  b.dout = input(rows(true, s.heads, s.v_head_dim), 1.0f);
  f.o = b.o = m.make(rows(true, s.heads, s.v_head_dim), gap, nan);
  f.lse = b.lse = ops.lse_memory.make(lse, 0, wide_nan);
  b.dq = m.make(f.q.shape, gap, nan);
  b.dk = m.make(f.k.shape, gap, nan);
  b.dv = m.make(f.v.shape, gap, nan);
  if (c.dlse) {
    b.dlse = ops.lse_memory.make(lse, 0, wide_nan);
    fill_normal(b.dlse, rng, 1.0f);
  }
  if (s.sink) {
    f.sink = b.sink = ops.lse_memory.make({s.heads}, 0, wide_nan);
    fill_normal(f.sink, rng, 2.0f);
    b.dsink = ops.lse_memory.make({s.heads}, 0, LseOf<T>(0.5));  // added to
  }
  if (s.dropout > 0) {
    ops.dropout_state = {c.seed, c.offset};
    f.dropout_state = b.dropout_state = Tensor(ops.dropout_state.data(), {2}, Dtype::kI64);
  }
  if (s.block_mask) {
    ops.blocks = c.blocks(s);
    ops.key_blocks = transposed(ops.blocks);
    f.blocks = b.blocks = ops.blocks.lists();
    b.key_blocks = ops.key_blocks.lists();
  }
  auto ints = [](std::vector<std::int32_t>& v) { return Tensor(v.data(), {static_cast<std::int64_t>(v.size())}, Dtype::kI32); };
  if (s.varlen) {
    ops.cu_q = cumulative(c.lens_q, c.empty_tail);
    ops.cu_k = cumulative(c.lens_k, c.empty_tail);
    f.cu_seqlens_q = b.cu_seqlens_q = ints(ops.cu_q);
    f.cu_seqlens_k = b.cu_seqlens_k = ints(ops.cu_k);
  }
  if (!c.used_q.empty()) {
    ops.used_q.assign(c.used_q.begin(), c.used_q.end());
    f.seqused_q = b.seqused_q = ints(ops.used_q);
  }
  if (!c.used_k.empty()) {
    ops.used_k.assign(c.used_k.begin(), c.used_k.end());
    f.seqused_k = b.seqused_k = ints(ops.used_k);
    if (!s.varlen)  // what lies behind the used keys must not be read
      for (std::int64_t i = 0; i < s.batch; ++i)
        for (const Tensor& t : {f.k, f.v})
          each(t.select(0, i).slice(0, ops.used_k[static_cast<std::size_t>(i)], s.max_k - ops.used_k[static_cast<std::size_t>(i)]),
               [&, base = static_cast<T*>(
                       t.select(0, i)
                           .slice(0, ops.used_k[static_cast<std::size_t>(i)], s.max_k - ops.used_k[static_cast<std::size_t>(i)])
                           .data)](std::int64_t, std::int64_t o) { base[o] = nan; });
  }
  if (s.alibi && c.slopes) {
    const std::int64_t n = s.heads * (c.slopes_per_batch ? s.batch : 1);
    std::uniform_real_distribution<float> d(0.01f, 0.3f);
    for (std::int64_t i = 0; i < n; ++i) ops.slopes.push_back(d(rng));
    f.alibi_slopes = b.alibi_slopes = Tensor(ops.slopes.data(), c.slopes_per_batch ? Shape{s.batch, s.heads} : Shape{s.heads}, Dtype::kF32);
  }
}

template <class Op> void launch_guarded(ThreadPool& pool, const Op& op) {
  check(op);
  if (flashgpt::testing::on_gpu()) return flashgpt::testing::run_on_gpu(op);
  const std::size_t bytes = scratch_bytes(cpu_target(pool.size()), op);
  constexpr std::size_t kGuard = 64;
  std::vector<float> memory(bytes / 4 + 2 + 2 * kGuard, kNan);
  const std::vector<float> before(memory);
  launch(CpuStream{pool}, op, Scratch{memory.data() + kGuard, bytes});
  EXPECT_EQ(0, std::memcmp(memory.data(), before.data(), kGuard * 4)) << "scratch written in front";
  EXPECT_EQ(0, std::memcmp(reinterpret_cast<char*>(memory.data() + kGuard) + bytes,
                           reinterpret_cast<const char*>(before.data() + kGuard) + bytes, kGuard * 4))
      << "scratch written behind its end";
}

// Largest error against the largest reference value, and error norm against reference norm. Infinities must be equal. `floor`: a value to
// compare with where the reference is smaller, for gradients that cancel to zero (a query that sees one key).
inline void expect_near(const std::string& what, const Tensor& got, const Tensor& want, double tolerance, double floor = 1e-3) {
  const std::vector<double> a = values(got), r = values(want);
  tolerance *= flashgpt::testing::gpu_slack();
  double worst = 0, largest = 0, error2 = 0, norm2 = 0;
  std::int64_t bad = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(r[i]) || std::isnan(r[i])) {
      bad += !(a[i] == r[i] || (std::isnan(a[i]) && std::isnan(r[i])));
      continue;
    }
    const double e = std::abs(a[i] - r[i]);
    if (!(e <= worst)) worst = e;
    largest = std::max(largest, std::abs(r[i]));
    error2 += e * e;
    norm2 += r[i] * r[i];
  }
  EXPECT_EQ(bad, 0) << what << ": infinities or NaNs differ";
  EXPECT_LE(worst, tolerance * std::max(largest, floor)) << what << ": largest error; largest value " << largest;
  EXPECT_LE(std::sqrt(error2), 0.6 * tolerance * std::max(std::sqrt(norm2), floor * std::sqrt(static_cast<double>(a.size()))))
      << what << ": norm of the error; norm " << std::sqrt(norm2);
}

// The gaps between rows still hold NaN.
template <class T> void expect_gaps(const std::string& what, const Tensor& t) {
  const std::int64_t row = t.dim(-1) * t.dim(-2), step = t.strides[t.rank() - 3], rows = t.numel() / std::max<std::int64_t>(1, row);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t c = row; c < step; ++c)
      ASSERT_TRUE(std::isnan(static_cast<float>(static_cast<T*>(t.data)[i * step + c]))) << what << ": written between rows at token " << i;
}

// What the GPU refuses by name: dropout, sinks and block masks in fp32, blocks of a few queries or keys.
inline bool gpu_refuses(const AttentionSpec& s) {
  if (s.dtype == Dtype::kF32) return s.dropout > 0 || s.sink || s.block_mask;
  return s.block_mask && std::min(s.block_q, s.block_k) < 8;
}

template <class T = float>
void expect_matches_reference(const Case& c, ThreadPool& pool, Implementation implementation, unsigned seed = 1) {
  if (flashgpt::testing::on_gpu() && gpu_refuses(c.spec)) return;
  SCOPED_TRACE(c.name);
  Ops<T> got;
  Ops<double> want;
  build(c, seed, got);
  build(c, seed, want);
  got.forward.implementation = got.backward.implementation = implementation;
  reference_forward(want.forward);
  launch_guarded(pool, got.forward);
  expect_near("o", got.forward.o, want.forward.o, c.tolerance);
  expect_near("lse", got.forward.lse, want.forward.lse, c.tolerance);
  reference_backward(want.backward);
  launch_guarded(pool, got.backward);
  expect_near("dq", got.backward.dq, want.backward.dq, 2 * c.tolerance, 1.0);
  expect_near("dk", got.backward.dk, want.backward.dk, 2 * c.tolerance, 1.0);
  expect_near("dv", got.backward.dv, want.backward.dv, 2 * c.tolerance, 1.0);
  // A sum over all rows of do . o, whose o has been rounded to T.
  const double rows = static_cast<double>(got.forward.lse.numel()) / static_cast<double>(c.spec.heads);
  if (c.spec.sink)
    expect_near("dsink", got.backward.dsink, want.backward.dsink, 2 * c.tolerance,
                std::is_same_v<T, float> ? 1.0 : std::max(1.0, 0.25 * std::sqrt(rows)));
  for (const Tensor& t : {got.forward.o, got.backward.dq, got.backward.dk, got.backward.dv}) expect_gaps<T>("an output", t);
}

struct IsaGuard {  // the instruction set in use, put back at the end
  explicit IsaGuard(Isa isa) : before(simd::use_isa(isa)) {}
  ~IsaGuard() { simd::use_isa(before); }
  Isa before;
};

}  // namespace flashgpt::attention::testing
