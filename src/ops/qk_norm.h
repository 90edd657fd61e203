// RMSNorm of each query and key head (Qwen3), in place on rows of qkv, before the rotation:
//   y = x rstd w,  rstd = 1 / sqrt(mean(x^2) + eps)   over the head_dim elements of a head; heads of q share one w, heads of k another.
// A row of qkv is [heads x head_dim of q | kv_heads x head_dim of k | kv_heads x head_dim of v]; v stays as it is.
#pragma once
#include "core/run.h"

namespace flashgpt {

struct QkNorm {
  Tensor qkv;       // inout [N, (heads + 2 kv_heads) * head_dim]
  Tensor x;         // out [N, (heads + kv_heads) * head_dim]: q and k as they came; absent: no gradient will ask for them
  Tensor rstd;      // out [N, heads + kv_heads] or absent
  Tensor q_weight;  // in [head_dim]
  Tensor k_weight;  // in [head_dim]
  std::int64_t heads = 0, kv_heads = 0;
  float eps = 1e-6f;

  static constexpr const char* kName = "qk_norm";
  template <class V> void fields(V& v) const {
    v.inout("qkv", qkv);
    v.out("x", x);
    v.out("rstd", rstd);
    v.in("q_weight", q_weight);
    v.in("k_weight", k_weight);
  }
};

// With xhat = x rstd and g = dy w:  dx = rstd (g - xhat mean(g xhat)).
struct QkNormGrad {
  Tensor dqkv;                // inout: gradient behind the norm -> gradient before it
  Tensor dq_weight;           // inout [head_dim], accumulates; or absent
  Tensor dk_weight;           // inout [head_dim], accumulates; or absent
  Tensor x, rstd;             // in, as QkNorm left them
  Tensor q_weight, k_weight;  // in [head_dim]
  std::int64_t heads = 0, kv_heads = 0;

  static constexpr const char* kName = "qk_norm_grad";
  template <class V> void fields(V& v) const {
    v.inout("dqkv", dqkv);
    v.inout("dq_weight", dq_weight);
    v.inout("dk_weight", dk_weight);
    v.in("x", x);
    v.in("rstd", rstd);
    v.in("q_weight", q_weight);
    v.in("k_weight", k_weight);
  }
};

void check(const QkNorm& op);
void check(const QkNormGrad& op);
std::size_t scratch_bytes(const Target& target, const QkNormGrad& op);
void launch(CpuStream s, const QkNorm& op, Scratch scratch);
void launch(CpuStream s, const QkNormGrad& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const QkNormGrad& op);
void launch(CudaStream s, const QkNorm& op, Scratch scratch);
void launch(CudaStream s, const QkNormGrad& op, Scratch scratch);

}  // namespace flashgpt
