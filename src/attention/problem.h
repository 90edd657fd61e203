// An op of attention, resolved for kernels that run on the CPU: numbers without defaults, views of tensors by sequence, row and head, and
// the lengths of a sequence. Dense and varlen differ here and nowhere below.
#pragma once
#include "attention/attention.h"
#include "attention/blocks.h"
#include "attention/mask.h"
#include "attention/score.h"
#include "core/philox.h"

namespace flashgpt::attention {

// A tensor by (sequence, row, head, column); strides in elements, columns are contiguous. Varlen: sequence stride 0, rows count through
// the stream. An absent tensor has data = nullptr.
template <class T> struct View {
  T* data = nullptr;
  Index sequence = 0, row = 0, head = 0;

  explicit operator bool() const { return data != nullptr; }
  T* at(Index b, Index i, Index h) const { return data + b * sequence + i * row + h * head; }
};

struct Sequence {
  Index index = 0;    // in the batch
  Index q_first = 0;  // row of its first query and key in the views
  Index k_first = 0;
  Index len_q = 0;
  Index len_k = 0;
};

struct Problem {
  Index batch = 0, max_q = 0, max_k = 0, total_q = 0, total_k = 0;  // total: rows of all sequences, dense too
  Index heads = 0, kv_heads = 0, group = 1, head_dim = 0, v_head_dim = 0;
  bool varlen = false;
  bool alibi = false;
  bool narrow = false;  // 16-bit tensors
  Mask mask;
  float scale = 1, softcap = 0;
  const std::int32_t *cu_q = nullptr, *cu_k = nullptr, *used_q = nullptr, *used_k = nullptr;
  const std::int32_t* k_starts = nullptr;  // dense: the first key of each sequence, where it is not the first row
  const float* slopes = nullptr;
  Index slopes_batch_stride = 0, slopes_first = 0;
  Index total_heads = 0, head_offset = 0;
  const void* sinks = nullptr;  // fp32 [heads] (of the reference also fp64); null: none
  bool sinks_are_double = false;
  const std::int64_t* dropout_state = nullptr;  // null: no dropout
  unsigned dropout_threshold = 0, dropout_stream = 0;
  BlockView blocks;  // false: every block is seen as far as the mask allows

  Sequence sequence(Index b) const {
    if (!varlen) return {b, 0, k_starts ? k_starts[b] : 0, used_q ? used_q[b] : max_q, used_k ? used_k[b] : max_k};
    Sequence s{b, cu_q[b], cu_k[b], cu_q[b + 1] - cu_q[b], cu_k[b + 1] - cu_k[b]};
    if (used_q) s.len_q = used_q[b];
    if (used_k) s.len_k = used_k[b];
    return s;
  }
  Score score(Index b, Index h) const;
  double sink(Index h) const {
    return sinks_are_double ? static_cast<const double*>(sinks)[h] : static_cast<double>(static_cast<const float*>(sinks)[h]);
  }
  // Reads dropout_state.
  Dropout dropout() const {
    if (!dropout_state) return {};
    return {static_cast<unsigned long long>(dropout_state[0]), static_cast<unsigned>(dropout_state[1]) + dropout_stream, dropout_threshold};
  }
  unsigned sequence_head(Index b, Index h) const { return static_cast<unsigned>(b * total_heads + head_offset + h); }
};

// Follows no pointer; of a CUDA op it gives the numbers only.
Problem problem_of(const Forward& op);
Problem problem_of(const Backward& op);

// Throws when lengths that lie in memory (cu_seqlens, seqused) leave the buffers. CPU only.
void check_lengths(const Problem& p);

template <class T> View<T> rows_view(const Tensor& t, bool varlen) {
  if (!t.data) return {};
  T* data = static_cast<T*>(t.data);
  if (varlen) return {data, 0, t.strides[0], t.strides[1]};
  return {data, t.strides[0], t.strides[1], t.strides[2]};
}
template <class T> View<T> lse_view(const Tensor& t, bool varlen) {
  if (!t.data) return {};
  T* data = static_cast<T*>(t.data);
  if (varlen) return {data, 0, t.strides[1], t.strides[0]};
  return {data, t.strides[0], t.strides[2], t.strides[1]};
}

// Pairs of a query and a key that see each other in one sequence.
double visible_pairs(const Mask& mask, Index len_q, Index len_k);

// Rows of the views that belong to no sequence (varlen: behind the last one, or behind seqused; dense: behind seqused), handed to f(first
// view coordinates: sequence index, first row, rows).
template <class F> void unused_rows(const Problem& p, bool queries, F&& f) {
  const std::int32_t* used = queries ? p.used_q : p.used_k;
  if (p.varlen) {
    const std::int32_t* cu = queries ? p.cu_q : p.cu_k;
    if (used)
      for (Index b = 0; b < p.batch; ++b) f(Index{0}, Index{cu[b]} + used[b], Index{cu[b + 1]} - cu[b] - used[b]);
    f(Index{0}, Index{cu[p.batch]}, (queries ? p.total_q : p.total_k) - cu[p.batch]);
  } else if (used) {
    for (Index b = 0; b < p.batch; ++b) f(b, Index{used[b]}, (queries ? p.max_q : p.max_k) - used[b]);
  }
}

}  // namespace flashgpt::attention
