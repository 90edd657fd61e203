// Attention the traditional way: the whole score matrix of a head lies in memory, its two products (five in the backward) are calls of the
// BLAS, the softmax is a sweep over rows. It is the baseline that users compare with, so it does nothing that a textbook implementation
// would not: the products are rectangles, causal or not. Scratch: one matrix a thread (two in the backward), quadratic in the length.
#include <algorithm>
#include <cmath>

#include "attention/implementations.h"
#include "attention/online_softmax.h"
#include "attention/schedule.h"
#include "core/cpu/simd_math.h"
#include "core/gemm.h"

namespace flashgpt::attention {
namespace {

using namespace simd;

// s[0, n) = scale * s, its largest element returned through `largest`.
struct ScaleRow {
  float scale;
  template <int W> [[gnu::always_inline]] void run(float* s, Index n, float* largest) const {
    Vec<W> most = splat<W>(-__builtin_inff());
    for (Index j = 0; j < n; j += kLanes) {
      const Vec<W> x = load_upto<W>(s + j, n - j, -__builtin_inff()) * splat<W>(scale);
      most = at_least(x, most);
      store_upto<W>(s + j, x, n - j);
    }
    *largest = simd::largest(most);
  }
};

// s = exp(s - shift), summed.
struct ExpRow {
  template <int W> [[gnu::always_inline]] void run(float* s, Index n, float shift, float* sum) const {
    Vec<W> total = splat<W>(0.0f);
    for (Index j = 0; j < n; j += kLanes) {
      const Vec<W> p = simd::exp<W>(load_upto<W>(s + j, n - j, -__builtin_inff()) - splat<W>(shift));
      total = total + p;
      store_upto<W>(s + j, p, n - j);
    }
    *sum = simd::sum(total);
  }
};

// s = exp(scale * s - lse),  ds = s * (ds - delta) * scale
struct GradientRow {
  float scale;
  template <int W> [[gnu::always_inline]] void run(float* s, float* ds, Index n, float lse, float delta) const {
    for (Index j = 0; j < n; j += kLanes) {
      const Vec<W> p = simd::exp<W>(load_upto<W>(s + j, n - j) * splat<W>(scale) - splat<W>(lse));
      store_upto<W>(s + j, p, n - j);
      store_upto<W>(ds + j, p * (load_upto<W>(ds + j, n - j) - splat<W>(delta)) * splat<W>(scale), n - j);
    }
  }
};

bool plain(const Problem& p) { return p.softcap == 0 && !p.alibi; }

// Row i of S to its softmax; returns lse.
float softmax_row(const Problem& p, const Sequence& s, const Score& sc, Index i, float* row) {
  const Range keys = keys_of(p.mask, i, i + 1, s.len_q, s.len_k);
  const Index n = std::max<Index>(0, keys.last - keys.first);
  std::fill(row, row + std::min(keys.first, s.len_k), 0.0f);
  std::fill(row + std::max<Index>(keys.last, 0), row + s.len_k, 0.0f);
  if (n == 0) {
    std::fill(row, row + s.len_k, 0.0f);
    return -__builtin_inff();
  }
  float largest = 0, sum = 0;
  if (!plain(p))
    for (Index j = keys.first; j < keys.last; ++j) row[j] = score(sc, row[j], j - (i + s.len_k - s.len_q)).value;
  simd::call(simd::isa(), ScaleRow{plain(p) ? sc.scale : 1.0f}, row + keys.first, n, &largest);
  simd::call(simd::isa(), ExpRow{}, row + keys.first, n, largest == -__builtin_inff() ? 0.0f : largest, &sum);
  const float inverse = sum == 0 ? 0 : 1 / sum;
  for (Index j = keys.first; j < keys.last; ++j) row[j] *= inverse;
  return sum == 0 ? -__builtin_inff() : largest + std::log(sum);
}

// Row i of S and dP to P and dS.
void gradient_row(const Problem& p, const Sequence& s, const Score& sc, Index i, float lse, float delta, float* row, float* grad) {
  const Range keys = keys_of(p.mask, i, i + 1, s.len_q, s.len_k);
  const bool none = keys.first >= keys.last || lse == -__builtin_inff();
  for (float* x : {row, grad}) {
    std::fill(x, x + (none ? s.len_k : keys.first), 0.0f);
    if (!none) std::fill(x + keys.last, x + s.len_k, 0.0f);
  }
  if (none) return;
  if (plain(p))
    return simd::call(simd::isa(), GradientRow{sc.scale}, row + keys.first, grad + keys.first, keys.last - keys.first, lse, delta);
  for (Index j = keys.first; j < keys.last; ++j) {
    const ScoreValue<float> x = score(sc, row[j], j - (i + s.len_k - s.len_q));
    row[j] = std::exp(x.value - lse);
    grad[j] = row[j] * (grad[j] - delta) * x.derivative;
  }
}

std::size_t matrix_floats(const Problem& p) { return static_cast<std::size_t>(round_up(p.max_q * p.max_k, 16)); }

void clear(const Problem& p, bool queries, Index heads, Index columns, const View<float>& t) {
  unused_rows(p, queries, [&](Index b, Index first, Index count) {
    for (Index i = first; i < first + count; ++i)
      for (Index h = 0; h < heads; ++h) std::fill_n(t.at(b, i, h), columns, 0.0f);
  });
}

}  // namespace

std::size_t standard_scratch_bytes(const Target& target, const Forward& op) {
  return static_cast<std::size_t>(target.threads) * matrix_floats(problem_of(op)) * sizeof(float);
}
std::size_t standard_scratch_bytes(const Target& target, const Backward& op) {
  return static_cast<std::size_t>(target.threads) * 2 * matrix_floats(problem_of(op)) * sizeof(float);
}

void standard_forward(CpuStream stream, const Forward& op, Scratch scratch) {
  const Problem p = problem_of(op);
  const auto q = rows_view<const float>(op.q, p.varlen), k = rows_view<const float>(op.k, p.varlen),
             v = rows_view<const float>(op.v, p.varlen);
  const auto o = rows_view<float>(op.o, p.varlen), lse = lse_view<float>(op.lse, p.varlen);
  auto* memory = static_cast<float*>(scratch.data);
  stream.pool.parallel_for(p.batch * p.heads, [&](Index task, int worker) {
    const Index b = task / p.heads, h = task % p.heads, kv = h / p.group;
    const Sequence s = p.sequence(b);
    if (s.len_q == 0) return;
    const Score sc = p.score(b, h);
    float* matrix = memory + static_cast<std::size_t>(worker) * matrix_floats(p);
    gemm_serial(false, true, s.len_q, s.len_k, p.head_dim, 1.0f, q.at(b, s.q_first, h), q.row, k.at(b, s.k_first, kv), k.row, false, matrix,
                std::max<Index>(1, s.len_k));
    for (Index i = 0; i < s.len_q; ++i) {
      const float l = softmax_row(p, s, sc, i, matrix + i * s.len_k);
      if (lse) *lse.at(b, s.q_first + i, h) = l;
    }
    gemm_serial(false, false, s.len_q, p.v_head_dim, s.len_k, 1.0f, matrix, std::max<Index>(1, s.len_k), v.at(b, s.k_first, kv), v.row,
                false, o.at(b, s.q_first, h), o.row);
  });
  clear(p, true, p.heads, p.v_head_dim, o);
  if (lse)
    unused_rows(p, true, [&](Index b, Index first, Index count) {
      for (Index i = first; i < first + count; ++i)
        for (Index h = 0; h < p.heads; ++h) *lse.at(b, i, h) = -__builtin_inff();
    });
}

void standard_backward(CpuStream stream, const Backward& op, Scratch scratch) {
  const Problem p = problem_of(op);
  const auto q = rows_view<const float>(op.q, p.varlen), k = rows_view<const float>(op.k, p.varlen),
             v = rows_view<const float>(op.v, p.varlen);
  const auto o = rows_view<const float>(op.o, p.varlen), dout = rows_view<const float>(op.dout, p.varlen);
  const auto lse = lse_view<const float>(op.lse, p.varlen), dlse = lse_view<const float>(op.dlse, p.varlen);
  const auto dq = rows_view<float>(op.dq, p.varlen), dk = rows_view<float>(op.dk, p.varlen), dv = rows_view<float>(op.dv, p.varlen);
  auto* memory = static_cast<float*>(scratch.data);
  stream.pool.parallel_for(p.batch * p.kv_heads, [&](Index task, int worker) {
    const Index b = task / p.kv_heads, kv = task % p.kv_heads;
    const Sequence s = p.sequence(b);
    float* matrix = memory + static_cast<std::size_t>(worker) * 2 * matrix_floats(p);
    float* grad = matrix + matrix_floats(p);
    const Index ld = std::max<Index>(1, s.len_k);
    for (Index h = kv * p.group; h < (kv + 1) * p.group; ++h) {
      const Score sc = p.score(b, h);
      const bool add = h > kv * p.group;
      const float *qh = q.at(b, s.q_first, h), *kh = k.at(b, s.k_first, kv), *vh = v.at(b, s.k_first, kv), *gh = dout.at(b, s.q_first, h);
      gemm_serial(false, true, s.len_q, s.len_k, p.head_dim, 1.0f, qh, q.row, kh, k.row, false, matrix, ld);
      gemm_serial(false, true, s.len_q, s.len_k, p.v_head_dim, 1.0f, gh, dout.row, vh, v.row, false, grad, ld);
      for (Index i = 0; i < s.len_q; ++i) {
        const float *go = dout.at(b, s.q_first + i, h), *out = o.at(b, s.q_first + i, h);
        double delta = dlse ? -static_cast<double>(*dlse.at(b, s.q_first + i, h)) : 0.0;
        for (Index c = 0; c < p.v_head_dim; ++c) delta += static_cast<double>(go[c]) * static_cast<double>(out[c]);
        gradient_row(p, s, sc, i, *lse.at(b, s.q_first + i, h), static_cast<float>(delta), matrix + i * s.len_k, grad + i * s.len_k);
      }
      gemm_serial(true, false, s.len_k, p.v_head_dim, s.len_q, 1.0f, matrix, ld, gh, dout.row, add, dv.at(b, s.k_first, kv), dv.row);
      gemm_serial(true, false, s.len_k, p.head_dim, s.len_q, 1.0f, grad, ld, qh, q.row, add, dk.at(b, s.k_first, kv), dk.row);
      gemm_serial(false, false, s.len_q, p.head_dim, s.len_k, 1.0f, grad, ld, kh, k.row, false, dq.at(b, s.q_first, h), dq.row);
    }
  });
  clear(p, true, p.heads, p.head_dim, dq);
  clear(p, false, p.kv_heads, p.head_dim, dk);
  clear(p, false, p.kv_heads, p.v_head_dim, dv);
}

}  // namespace flashgpt::attention
