// Attention in double precision, row by row, as the formulas stand: the oracle of every other implementation.
//
//   s_ij = score(q_i . k_j)    p_ij = exp(s_ij - lse_i), lse with the sink    w_ij = z_ij p_ij    o_i = sum_j w_ij v_j
//   dv_j = sum_i w_ij do_i     ds_ij = p_ij (z_ij do_i . v_j - do_i . o_i + dlse_i) score'(q_i . k_j)
//   dq_i = sum_j ds_ij k_j     dk_j = sum_i ds_ij q_i      dsink += sum_i exp(sink - lse_i) (dlse_i - do_i . o_i)
// z: dropout's factor, 0 or the scale; 1 without. The backward takes nothing from the forward: o and lse are computed again.
#include <vector>

#include "attention/implementations.h"
#include "attention/online_softmax.h"
#include "core/half.h"

namespace flashgpt::attention {
namespace {

template <class T> double wide(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return static_cast<double>(static_cast<float>(x));
}
template <class T> T narrow(double x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return T(static_cast<float>(x));
}

template <class T> double dot(const T* a, const T* b, Index n) {
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += wide(a[c]) * wide(b[c]);
  return sum;
}

// What lse is stored as: fp32, or double where everything is.
template <class T> using LseOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T> struct Row {  // scores of one query against all keys, and their softmax
  std::vector<Index> keys;       // those that it sees
  std::vector<ScoreValue<double>> score;
  std::vector<double> p, factor, o;  // factor: of dropout
  double lse = 0;

  void compute(const Problem& pr, const Sequence& s, Index h, Index i, const View<const T>& q, const View<const T>& k,
               const View<const T>& v) {
    const Score sc = pr.score(s.index, h);
    const Dropout dropout = pr.dropout();
    const Index kv = h / pr.group;
    keys.clear(), score.clear(), p.clear(), factor.clear();
    o.assign(static_cast<std::size_t>(pr.v_head_dim), 0);
    SoftmaxState<double> state;
    for (Index j = 0; j < s.len_k; ++j) {
      const Seen block = pr.blocks ? pr.blocks.seen(s.index, h, i / pr.blocks.block_q, j / pr.blocks.block_k) : Seen::kPartial;
      if (block == Seen::kNone || (block == Seen::kPartial && !visible(pr.mask, i, j, s.len_q, s.len_k))) continue;
      const double x = dot(q.at(s.index, s.q_first + i, h), k.at(s.index, s.k_first + j, kv), pr.head_dim);
      keys.push_back(j);
      score.push_back(attention::score(sc, x, j - (i + s.len_k - s.len_q)));
      factor.push_back(dropout.threshold == 0                                       ? 1.0
                       : dropout_keeps(dropout, pr.sequence_head(s.index, h), i, j) ? wide(dropout_scale(dropout.threshold))
                                                                                    : 0.0);
      add(state, score.back().value);
    }
    if (pr.sinks) add(state, pr.sink(h));
    lse = log_sum_exp(state);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      p.push_back(exp_shifted(score[n].value, lse));
      if (factor[n] == 0) continue;
      const double w = p[n] * factor[n];
      const T* row = v.at(s.index, s.k_first + keys[n], kv);
      for (Index c = 0; c < pr.v_head_dim; ++c) o[static_cast<std::size_t>(c)] += w * wide(row[c]);
    }
  }
};

template <class T> void clear_rows(const Problem& p, bool queries, Index heads, Index columns, const View<T>& t) {
  unused_rows(p, queries, [&](Index b, Index first, Index rows) {
    for (Index i = first; i < first + rows; ++i)
      for (Index h = 0; h < heads; ++h)
        for (Index c = 0; c < columns; ++c) t.at(b, i, h)[c] = narrow<T>(0);
  });
}

// O: what o is stored as.
template <class T, class O> void forward_as(const Forward& op) {
  using L = LseOf<T>;
  const Problem p = problem_of(op);
  const auto q = rows_view<const T>(op.q, p.varlen), k = rows_view<const T>(op.k, p.varlen), v = rows_view<const T>(op.v, p.varlen);
  const auto o = rows_view<O>(op.o, p.varlen);
  const auto lse = lse_view<L>(op.lse, p.varlen);
  Row<T> row;
  for (Index b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    for (Index h = 0; h < p.heads; ++h)
      for (Index i = 0; i < s.len_q; ++i) {
        row.compute(p, s, h, i, q, k, v);
        for (Index c = 0; c < p.v_head_dim; ++c) o.at(b, s.q_first + i, h)[c] = narrow<O>(row.o[static_cast<std::size_t>(c)]);
        if (lse) *lse.at(b, s.q_first + i, h) = narrow<L>(row.lse);
      }
  }
  clear_rows(p, true, p.heads, p.v_head_dim, o);
  if (lse)
    unused_rows(p, true, [&](Index b, Index first, Index rows) {
      for (Index i = first; i < first + rows; ++i)
        for (Index h = 0; h < p.heads; ++h) *lse.at(b, i, h) = -infinity_of<L>();
    });
}

template <class T> void forward(const Forward& op) {
  if (op.spec.partial_output) return forward_as<T, LseOf<T>>(op);
  forward_as<T, T>(op);
}

template <class T> void backward(const Backward& op) {
  const Problem p = problem_of(op);
  const auto q = rows_view<const T>(op.q, p.varlen), k = rows_view<const T>(op.k, p.varlen), v = rows_view<const T>(op.v, p.varlen);
  const auto dout = rows_view<const T>(op.dout, p.varlen);
  const auto dq = rows_view<T>(op.dq, p.varlen), dk = rows_view<T>(op.dk, p.varlen), dv = rows_view<T>(op.dv, p.varlen);
  const auto dlse = lse_view<const LseOf<T>>(op.dlse, p.varlen);
  Row<T> row;
  std::vector<double> gq(static_cast<std::size_t>(p.head_dim)), gk, gv, gsink(static_cast<std::size_t>(p.heads));
  for (Index b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    for (Index kv = 0; kv < p.kv_heads; ++kv) {
      gk.assign(static_cast<std::size_t>(s.len_k * p.head_dim), 0);
      gv.assign(static_cast<std::size_t>(s.len_k * p.v_head_dim), 0);
      for (Index h = kv * p.group; h < (kv + 1) * p.group; ++h)
        for (Index i = 0; i < s.len_q; ++i) {
          row.compute(p, s, h, i, q, k, v);
          const T* d = dout.at(b, s.q_first + i, h);
          double delta = 0;
          for (Index c = 0; c < p.v_head_dim; ++c) delta += wide(d[c]) * row.o[static_cast<std::size_t>(c)];
          if (dlse) delta -= wide(*dlse.at(b, s.q_first + i, h));
          if (p.sinks) gsink[static_cast<std::size_t>(h)] -= exp_shifted(p.sink(h), row.lse) * delta;
          gq.assign(gq.size(), 0);
          for (std::size_t n = 0; n < row.keys.size(); ++n) {
            const Index j = row.keys[n];
            const double w = row.p[n] * row.factor[n];
            const double dp = row.factor[n] == 0 ? 0 : row.factor[n] * dot(d, v.at(b, s.k_first + j, kv), p.v_head_dim);
            const double ds = row.p[n] * (dp - delta) * row.score[n].derivative;
            if (row.factor[n] != 0)
              for (Index c = 0; c < p.v_head_dim; ++c) gv[static_cast<std::size_t>(j * p.v_head_dim + c)] += w * wide(d[c]);
            for (Index c = 0; c < p.head_dim; ++c) {
              gq[static_cast<std::size_t>(c)] += ds * wide(k.at(b, s.k_first + j, kv)[c]);
              gk[static_cast<std::size_t>(j * p.head_dim + c)] += ds * wide(q.at(b, s.q_first + i, h)[c]);
            }
          }
          for (Index c = 0; c < p.head_dim; ++c) dq.at(b, s.q_first + i, h)[c] = narrow<T>(gq[static_cast<std::size_t>(c)]);
        }
      for (Index j = 0; j < s.len_k; ++j) {
        for (Index c = 0; c < p.head_dim; ++c) dk.at(b, s.k_first + j, kv)[c] = narrow<T>(gk[static_cast<std::size_t>(j * p.head_dim + c)]);
        for (Index c = 0; c < p.v_head_dim; ++c)
          dv.at(b, s.k_first + j, kv)[c] = narrow<T>(gv[static_cast<std::size_t>(j * p.v_head_dim + c)]);
      }
    }
  }
  if (p.sinks && op.dsink)
    for (Index h = 0; h < p.heads; ++h) {
      const double g = gsink[static_cast<std::size_t>(h)];
      if (op.dsink.dtype == Dtype::kF64)
        static_cast<double*>(op.dsink.data)[h] += g;
      else
        static_cast<float*>(op.dsink.data)[h] += static_cast<float>(g);
    }
  clear_rows(p, true, p.heads, p.head_dim, dq);
  clear_rows(p, false, p.kv_heads, p.head_dim, dk);
  clear_rows(p, false, p.kv_heads, p.v_head_dim, dv);
}

// f<T>(op), T being the type of q.
template <class F> void by_dtype(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::kF64: return f.template operator()<double>();
    case Dtype::kBF16: return f.template operator()<Bf16>();
    case Dtype::kF16: return f.template operator()<Fp16>();
    default: return f.template operator()<float>();
  }
}

}  // namespace

void reference_forward(const Forward& op) {
  by_dtype(op.q.dtype, [&]<class T>() { forward<T>(op); });
}
void reference_backward(const Backward& op) {
  by_dtype(op.q.dtype, [&]<class T>() { backward<T>(op); });
}

}  // namespace flashgpt::attention
