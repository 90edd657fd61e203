// Attention in double precision, row by row, as the formulas stand: the oracle of every other implementation.
//
//   s_ij = score(q_i . k_j)    p_ij = exp(s_ij - lse_i)    o_i = sum_j p_ij v_j
//   dv_j = sum_i p_ij do_i     ds_ij = p_ij (do_i . v_j - do_i . o_i + dlse_i) score'(q_i . k_j)
//   dq_i = sum_j ds_ij k_j     dk_j = sum_i ds_ij q_i
// The backward takes nothing from the forward: o and lse are computed again.
#include <vector>

#include "attention/implementations.h"
#include "attention/online_softmax.h"

namespace flashgpt::attention {
namespace {

template <class T> double dot(const T* a, const T* b, Index n) {
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return sum;
}

template <class T> struct Row {  // scores of one query against all keys, and their softmax
  std::vector<ScoreValue<double>> score;
  std::vector<double> p, o;
  double lse = 0;

  void compute(const Problem& pr, const Sequence& s, Index h, Index i, const View<const T>& q, const View<const T>& k,
               const View<const T>& v) {
    const Score sc = pr.score(s.index, h);
    const Range keys = keys_of(pr.mask, i, i + 1, s.len_q, s.len_k);
    const Index kv = h / pr.group;
    score.assign(static_cast<std::size_t>(s.len_k), {0, 0});
    p.assign(static_cast<std::size_t>(s.len_k), 0);
    o.assign(static_cast<std::size_t>(pr.v_head_dim), 0);
    SoftmaxState<double> state;
    for (Index j = keys.first; j < keys.last; ++j) {
      const double x = dot(q.at(s.index, s.q_first + i, h), k.at(s.index, s.k_first + j, kv), pr.head_dim);
      score[static_cast<std::size_t>(j)] = attention::score(sc, x, j - (i + s.len_k - s.len_q));
      add(state, score[static_cast<std::size_t>(j)].value);
    }
    lse = log_sum_exp(state);
    for (Index j = keys.first; j < keys.last; ++j) {
      const double w = p[static_cast<std::size_t>(j)] = exp_shifted(score[static_cast<std::size_t>(j)].value, lse);
      const T* row = v.at(s.index, s.k_first + j, kv);
      for (Index c = 0; c < pr.v_head_dim; ++c) o[static_cast<std::size_t>(c)] += w * static_cast<double>(row[c]);
    }
  }
};

template <class T> void clear_rows(const Problem& p, bool queries, Index heads, Index columns, const View<T>& t) {
  unused_rows(p, queries, [&](Index b, Index first, Index rows) {
    for (Index i = first; i < first + rows; ++i)
      for (Index h = 0; h < heads; ++h)
        for (Index c = 0; c < columns; ++c) t.at(b, i, h)[c] = 0;
  });
}

template <class T> void forward(const Forward& op) {
  const Problem p = problem_of(op);
  const auto q = rows_view<const T>(op.q, p.varlen), k = rows_view<const T>(op.k, p.varlen), v = rows_view<const T>(op.v, p.varlen);
  const auto o = rows_view<T>(op.o, p.varlen);
  const auto lse = lse_view<T>(op.lse, p.varlen);
  Row<T> row;
  for (Index b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    for (Index h = 0; h < p.heads; ++h)
      for (Index i = 0; i < s.len_q; ++i) {
        row.compute(p, s, h, i, q, k, v);
        for (Index c = 0; c < p.v_head_dim; ++c) o.at(b, s.q_first + i, h)[c] = static_cast<T>(row.o[static_cast<std::size_t>(c)]);
        if (lse) *lse.at(b, s.q_first + i, h) = static_cast<T>(row.lse);
      }
  }
  clear_rows(p, true, p.heads, p.v_head_dim, o);
  if (lse)
    unused_rows(p, true, [&](Index b, Index first, Index rows) {
      for (Index i = first; i < first + rows; ++i)
        for (Index h = 0; h < p.heads; ++h) *lse.at(b, i, h) = -infinity_of<T>();
    });
}

template <class T> void backward(const Backward& op) {
  const Problem p = problem_of(op);
  const auto q = rows_view<const T>(op.q, p.varlen), k = rows_view<const T>(op.k, p.varlen), v = rows_view<const T>(op.v, p.varlen);
  const auto dout = rows_view<const T>(op.dout, p.varlen);
  const auto dq = rows_view<T>(op.dq, p.varlen), dk = rows_view<T>(op.dk, p.varlen), dv = rows_view<T>(op.dv, p.varlen);
  const auto dlse = lse_view<const T>(op.dlse, p.varlen);
  Row<T> row;
  std::vector<double> gq(static_cast<std::size_t>(p.head_dim)), gk, gv;
  for (Index b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    for (Index kv = 0; kv < p.kv_heads; ++kv) {
      gk.assign(static_cast<std::size_t>(s.len_k * p.head_dim), 0);
      gv.assign(static_cast<std::size_t>(s.len_k * p.v_head_dim), 0);
      for (Index h = kv * p.group; h < (kv + 1) * p.group; ++h)
        for (Index i = 0; i < s.len_q; ++i) {
          row.compute(p, s, h, i, q, k, v);
          const Range keys = keys_of(p.mask, i, i + 1, s.len_q, s.len_k);
          const T* d = dout.at(b, s.q_first + i, h);
          double delta = 0;
          for (Index c = 0; c < p.v_head_dim; ++c) delta += static_cast<double>(d[c]) * row.o[static_cast<std::size_t>(c)];
          if (dlse) delta -= static_cast<double>(*dlse.at(b, s.q_first + i, h));
          gq.assign(gq.size(), 0);
          for (Index j = keys.first; j < keys.last; ++j) {
            const double w = row.p[static_cast<std::size_t>(j)];
            const double ds =
                w * (dot(d, v.at(b, s.k_first + j, kv), p.v_head_dim) - delta) * row.score[static_cast<std::size_t>(j)].derivative;
            for (Index c = 0; c < p.v_head_dim; ++c) gv[static_cast<std::size_t>(j * p.v_head_dim + c)] += w * static_cast<double>(d[c]);
            for (Index c = 0; c < p.head_dim; ++c) {
              gq[static_cast<std::size_t>(c)] += ds * static_cast<double>(k.at(b, s.k_first + j, kv)[c]);
              gk[static_cast<std::size_t>(j * p.head_dim + c)] += ds * static_cast<double>(q.at(b, s.q_first + i, h)[c]);
            }
          }
          for (Index c = 0; c < p.head_dim; ++c) dq.at(b, s.q_first + i, h)[c] = static_cast<T>(gq[static_cast<std::size_t>(c)]);
        }
      for (Index j = 0; j < s.len_k; ++j) {
        for (Index c = 0; c < p.head_dim; ++c)
          dk.at(b, s.k_first + j, kv)[c] = static_cast<T>(gk[static_cast<std::size_t>(j * p.head_dim + c)]);
        for (Index c = 0; c < p.v_head_dim; ++c)
          dv.at(b, s.k_first + j, kv)[c] = static_cast<T>(gv[static_cast<std::size_t>(j * p.v_head_dim + c)]);
      }
    }
  }
  clear_rows(p, true, p.heads, p.head_dim, dq);
  clear_rows(p, false, p.kv_heads, p.head_dim, dk);
  clear_rows(p, false, p.kv_heads, p.v_head_dim, dv);
}

}  // namespace

void reference_forward(const Forward& op) { op.q.dtype == Dtype::kF64 ? forward<double>(op) : forward<float>(op); }
void reference_backward(const Backward& op) { op.q.dtype == Dtype::kF64 ? backward<double>(op) : backward<float>(op); }

}  // namespace flashgpt::attention
