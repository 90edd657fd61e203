// Which parameters a model has: each field with its name, shape and initialisation, said once. The list of ParamSpec and the structs that
// modules read are both made by walking this.
#pragma once
#include <cmath>

#include "model/config.h"

namespace flashgpt {

struct OuterParams {
  Tensor embedding;  // [V, C]
  Tensor positions;  // gpt2: [context_len, C]
  Norm final_norm;
  Tensor head;  // [V, C]; absent when tied to the embedding
};

inline constexpr float kEmbeddingStd = 0.02f;

// f(name, tensor, shape, init)
template <class F> void for_each_outer(const ModelConfig& c, OuterParams& p, F&& f) {
  const Init normal{InitKind::kNormal, kEmbeddingStd};
  f("embedding", p.embedding, Shape{c.vocab_size, c.width}, normal);
  if (c.family == Family::kGpt2) f("positions", p.positions, Shape{c.context_len, c.width}, normal);
  f("final_norm.w", p.final_norm.w, Shape{c.width}, Init{InitKind::kOnes});
  if (c.family == Family::kGpt2) f("final_norm.b", p.final_norm.b, Shape{c.width}, Init{});
  if (!c.tie_embeddings) f("head", p.head, Shape{c.vocab_size, c.width}, normal);
}

template <class F> void for_each_block(const ModelConfig& c, BlockParams& p, F&& f) {
  const bool bias = c.family == Family::kGpt2;
  const Init one{InitKind::kOnes};
  const std::int64_t columns = (c.heads + 2 * c.kv_heads) * c.head_dim, up = c.family == Family::kLlama ? 2 * c.mlp_hidden : c.mlp_hidden;
  const Init normal{InitKind::kNormal, kEmbeddingStd};
  // Products that add to the residual stream start smaller: 2 L of them are summed (GPT-2).
  const Init residual{InitKind::kNormal, kEmbeddingStd / std::sqrt(2.0f * static_cast<float>(c.layers))};
  auto norm = [&](const char* w, const char* b, Norm& n) {
    f(w, n.w, Shape{c.width}, one);
    if (bias) f(b, n.b, Shape{c.width}, Init{});
  };
  auto linear = [&](const char* w, const char* b, Linear& l, std::int64_t out, std::int64_t in, Init init) {
    f(w, l.w, Shape{out, in}, init);
    if (bias) f(b, l.b, Shape{out}, Init{});
  };
  norm("norm1.w", "norm1.b", p.norm1);
  f("qkv.w", p.mha.qkv.w, Shape{columns, c.width}, normal);
  if (bias || c.qkv_bias) f("qkv.b", p.mha.qkv.b, Shape{columns}, Init{});
  if (c.qk_norm) {
    f("q_norm", p.mha.q_norm, Shape{c.head_dim}, one);
    f("k_norm", p.mha.k_norm, Shape{c.head_dim}, one);
  }
  linear("out.w", "out.b", p.mha.out, c.width, c.heads * c.head_dim, residual);
  norm("norm2.w", "norm2.b", p.norm2);
  linear("up.w", "up.b", p.up, up, c.width, normal);
  linear("down.w", "down.b", p.down, c.width, c.mlp_hidden, residual);
}

}  // namespace flashgpt
