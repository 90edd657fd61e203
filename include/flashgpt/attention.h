// One description of an attention problem, for every implementation (reference, standard, cpu, sm80, sm90).
//
//   o = softmax(mask(score(scale * q k^T))) v        for each sequence and head; head h of q reads head h / (heads / kv_heads) of k, v
//
// The spec holds capacities: the most sequences, the most tokens, the longest sequence. Lengths and positions are device data
// that only kernels read, so that grids, memory and captured graphs depend on the spec alone.
#pragma once
#include <cstdint>

#include "flashgpt/dtype.h"

namespace flashgpt {

inline constexpr std::int64_t kNoWindow = -1;

struct AttentionSpec {
  // Shapes. Dense: q [batch, max_q, heads, head_dim], k [batch, max_k, kv_heads, head_dim], v [.., v_head_dim], o as q with v_head_dim,
  // lse [batch, heads, max_q]. Varlen (cu_seqlens given): q [total_q, heads, head_dim], k [total_k, ...], lse [heads, total_q].
  std::int64_t batch = 0;    // sequences; varlen: the most sequences that cu_seqlens can hold
  std::int64_t max_q = 0;    // longest sequence of queries
  std::int64_t max_k = 0;    // longest sequence of keys
  std::int64_t total_q = 0;  // varlen only: tokens that the buffers hold
  std::int64_t total_k = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t v_head_dim = 0;
  bool varlen = false;
  Dtype dtype = Dtype::kF32;  // of q, k, v, o and their gradients: fp32, bf16, fp16; sums are fp32. lse, sink, slopes: always fp32

  // Score: s = scale * q.k ; softcap c > 0: s = c * tanh(s / c) ; alibi: s -= slope * |i + len_k - len_q - j|.
  float scale = 0.0f;  // 0: 1 / sqrt(head_dim)
  float softcap = 0.0f;
  bool alibi = false;
  bool sink = false;  // one learned logit a head in the denominator: p_ij = exp(s_ij - lse_i), lse_i = log(exp(sink) + sum_j exp(s_ij))

  // Mask. Query i sees key j when i + len_k - len_q - window_left <= j <= i + len_k - len_q + window_right (bottom-right aligned,
  // inclusive; kNoWindow: no limit). causal means window_right = 0. A query that sees no key gives o = 0, lse = -inf (with a sink: the
  // sink), zero gradients.
  bool causal = false;
  std::int64_t window_left = kNoWindow;
  std::int64_t window_right = kNoWindow;

  // Block-sparse: the op carries lists of blocks of block_q queries by block_k keys, counted from the first query and key of a sequence.
  // A full block is seen whole, whatever the mask above; in a partial block the mask holds; other blocks are not seen.
  bool block_mask = false;
  std::int64_t block_q = 0;
  std::int64_t block_k = 0;

  // Probability of dropping a weight of the softmax, as a multiple of 1/256 (rounded; the weights kept are scaled by the inverse of the
  // realised rate): 0, or from 1/512 to below 511/512. Which ones: core/philox.h. lse is that of all weights.
  float dropout = 0.0f;
  std::uint32_t dropout_stream = 0;  // added to the offset that the op carries: what tells layers apart

  bool deterministic = false;  // bitwise equal gradients from run to run (the CPU always is)

  // Tensor parallel: this rank holds heads [head_offset, head_offset + heads) of total_heads (0: heads). ALiBi and dropout use them.
  std::int64_t head_offset = 0;
  std::int64_t total_heads = 0;

  // Context parallel: o in fp32 and meant to be merged with other parts by its lse.
  bool partial_output = false;
};

}  // namespace flashgpt
