// A transformer block on a residual stream that is kept as a sum not yet made: in = (x, delta), the stream is x + delta, and the sum is
// fused into the norm that reads it.
//   x = in.x + in.delta;  h = x + attention(norm1(x));  out = (h, mlp(norm2(h)))
#pragma once
#include <span>

#include "nn/mha.h"
#include "nn/mlp.h"
#include "ops/add_norm.h"

namespace flashgpt {

struct Residual {
  Tensor x;      // [N, C]
  Tensor delta;  // [N, C] or absent
};

// What a block's forward leaves behind. Which fields belong to the block and which are shared by all blocks is the recompute level's choice
// (BlockStore in nn/block.cpp).
struct BlockActs {
  Tensor x;                    // [N, C] residual stream that enters
  Tensor norm1, mean1, rstd1;  // [N, C], fp32 [N], fp32 [N]
  MhaActs mha;
  Tensor att_out;  // [N, C]
  Tensor h;        // [N, C] residual stream between attention and MLP
  Tensor norm2, mean2, rstd2;
  MlpActs mlp;
  Tensor delta;  // [N, C] what leaves, beside h
};

struct Block {
  NormKind norm = NormKind::kLayerNorm;
  float eps = 1e-5f;
  FlashMHA mha;
  FusedMLP mlp;

  void forward(Context& ctx, const BlockParams& w, const Sequences& seq, Residual in, BlockActs& a, Steps steps = kAllSteps,
               const KvCache* cache = nullptr) const;
  // dx [N, C]: gradient of the stream that leaves on entry, of the stream that enters on exit. Gradients of parameters accumulate.
  void backward(Context& ctx, const BlockParams& w, const BlockParams& g, const Sequences& seq, const BlockActs& a, const Tensor& dx) const;
};

// Activations of one block after the other for N tokens: fields that the level recomputes, and what no gradient reads, lie once in memory
// shared by all.
void allocate_acts(Context& ctx, const Block& block, const Sequences& seq, Recompute level, Dtype dtype, std::span<BlockActs> acts);

// For inference nothing is kept: one set that every block uses. x and h are two buffers used in turns.
BlockActs allocate_inference_acts(Context& ctx, const Block& block, const Sequences& seq, Dtype dtype);

}  // namespace flashgpt
