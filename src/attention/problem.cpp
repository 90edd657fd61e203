#include "attention/problem.h"

#include <algorithm>
#include <cmath>

namespace flashgpt::attention {
namespace {

template <class Op> Problem resolve(const Op& op) {
  const AttentionSpec& s = op.spec;
  Problem p;
  p.batch = s.batch;
  p.max_q = s.max_q;
  p.max_k = s.max_k;
  p.varlen = s.varlen;
  p.total_q = s.varlen ? s.total_q : s.batch * s.max_q;
  p.total_k = s.varlen ? s.total_k : s.batch * s.max_k;
  p.heads = s.heads;
  p.kv_heads = s.kv_heads;
  p.group = s.heads / s.kv_heads;
  p.head_dim = s.head_dim;
  p.v_head_dim = s.v_head_dim;
  p.mask = {s.window_left, s.causal ? 0 : s.window_right};
  p.scale = s.scale != 0 ? s.scale : 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  p.softcap = s.softcap;
  p.alibi = s.alibi;
  p.narrow = s.dtype == Dtype::kBF16 || s.dtype == Dtype::kF16;
  p.total_heads = s.total_heads != 0 ? s.total_heads : s.heads;
  p.head_offset = s.head_offset;
  auto ints = [](const Tensor& t) { return static_cast<const std::int32_t*>(t.data); };
  p.cu_q = ints(op.cu_seqlens_q);
  p.cu_k = ints(op.cu_seqlens_k);
  p.used_q = ints(op.seqused_q);
  p.used_k = ints(op.seqused_k);
  if (const Tensor& t = op.alibi_slopes; s.alibi && t.data) {
    p.slopes = static_cast<const float*>(t.data);
    p.slopes_batch_stride = t.rank() == 2 ? t.strides[0] : 0;
    p.slopes_first = t.dim(-1) == s.heads ? 0 : s.head_offset;
  }
  if (s.sink) {
    p.sinks = op.sink.data;
    p.sinks_are_double = op.sink.dtype == Dtype::kF64;
  }
  if (s.dropout > 0) {
    p.dropout_state = static_cast<const std::int64_t*>(op.dropout_state.data);
    p.dropout_threshold = flashgpt::dropout_threshold(s.dropout);
    p.dropout_stream = s.dropout_stream;
  }
  p.blocks = block_view(op.blocks, s);
  return p;
}

void check_lengths_of(const char* name, const std::int32_t* cu, const std::int32_t* used, const Problem& p, Index longest, Index total) {
  if (p.varlen) {
    require(cu[0] == 0, "attention: cu_seqlens_", name, "[0] = ", cu[0], ", expected 0");
    for (Index b = 0; b < p.batch; ++b) {
      const Index length = Index{cu[b + 1]} - cu[b];
      require(length >= 0 && length <= longest, "attention: cu_seqlens_", name, "[", b + 1, "] - cu_seqlens_", name, "[", b, "] = ", length,
              ", expected 0 to max_", name, " = ", longest);
    }
    require(cu[p.batch] <= total, "attention: cu_seqlens_", name, "[", p.batch, "] = ", cu[p.batch], ", expected at most total_", name,
            " = ", total);
  }
  if (used)
    for (Index b = 0; b < p.batch; ++b) {
      const Index room = p.varlen ? Index{cu[b + 1]} - cu[b] : longest;
      require(used[b] >= 0 && used[b] <= room, "attention: seqused_", name, "[", b, "] = ", used[b], ", expected 0 to ", room);
    }
}

}  // namespace

Problem problem_of(const Forward& op) { return resolve(op); }
Problem problem_of(const Backward& op) { return resolve(op); }

Score Problem::score(Index b, Index h) const {
  Score s{scale, softcap, 0};
  if (alibi) s.slope = slopes ? slopes[b * slopes_batch_stride + slopes_first + h] : alibi_slope(total_heads, head_offset + h);
  return s;
}

void check_lengths(const Problem& p) {
  check_lengths_of("q", p.cu_q, p.used_q, p, p.max_q, p.total_q);
  check_lengths_of("k", p.cu_k, p.used_k, p, p.max_k, p.total_k);
}

double visible_pairs(const Mask& mask, Index len_q, Index len_k) {
  if (mask.left < 0 && mask.right < 0) return static_cast<double>(len_q) * static_cast<double>(len_k);
  double pairs = 0;
  for (Index i = 0; i < len_q; ++i) {
    const Range keys = keys_of(mask, i, i + 1, len_q, len_k);
    pairs += static_cast<double>(std::max<Index>(0, keys.last - keys.first));
  }
  return pairs;
}

}  // namespace flashgpt::attention
