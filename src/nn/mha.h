// FlashMHA: multi-head attention between two linear layers.
//   qkv = rope(norm(x w_qkv^T + b_qkv)),  att = attention(q, k, v),  y = att w_out^T + b_out
// norm, if its weights are there: RMSNorm of each head of q and k.
#pragma once
#include "attention/attention.h"
#include "nn/dense.h"
#include "nn/steps.h"

namespace flashgpt {

// The sequences of a batch, and what depends on position. N = batch * length tokens.
struct Sequences {
  std::int64_t batch = 0;   // rows
  std::int64_t length = 0;  // tokens a row
  Tensor positions;         // int32 [N]
  Tensor cu_seqlens;        // int32 [N + 1]: bounds of documents in the stream of N tokens; absent: each row is one sequence
  Tensor inv_freq;          // RoPE: fp32 [rope_dim / 2] or absent
  Tensor alibi_slopes;      // fp32 [heads] or absent
};

// Keys and values of tokens seen before. Row b holds lengths[b] tokens after the new ones have been appended.
struct KvCache {
  Tensor k, v;         // [batch, capacity, kv_heads, head_dim]
  Tensor starts;       // int32 [batch]: where the first new token of a row goes
  Tensor new_lengths;  // int32 [batch]: new tokens of a row that count (the rest is padding)
  Tensor lengths;      // int32 [batch]: starts + new_lengths
};

struct MhaActs {
  Tensor qk, qk_rstd;  // with qk_norm: [N, (heads + kv_heads) * head_dim] before the norm, fp32 [N, heads + kv_heads]
  Tensor qkv;          // [N, (heads + 2 kv_heads) * head_dim], after bias, norm and rotation
  Tensor att;          // [N, heads * head_dim]
  Tensor lse;          // fp32 [heads, N] (documents) or [batch, heads, length]
};

struct FlashMHA {
  std::int64_t width = 0;  // C
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
  std::int64_t window = 0;  // keys that a query sees, itself included; 0: all before it
  bool qk_norm = false;
  float qk_norm_eps = 1e-6f;
  attention::Implementation implementation = attention::Implementation::kAuto;

  std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  // x [N, C], y [N, C]. Of kQkv, kAttention and kOut, the steps given. With a cache, keys and values go through it.
  void forward(Context& ctx, const MhaParams& w, const Sequences& seq, const Tensor& x, MhaActs& a, const Tensor& y,
               Steps steps = kAllSteps, const KvCache* cache = nullptr) const;
  // dx is overwritten; gradients of parameters accumulate. dy is left as it is.
  void backward(Context& ctx, const MhaParams& w, const MhaParams& g, const Sequences& seq, const Tensor& x, const MhaActs& a,
                const Tensor& dy, const Tensor& dx) const;
};

}  // namespace flashgpt
