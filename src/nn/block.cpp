#include "nn/block.h"

namespace flashgpt {

void Block::forward(Context& ctx, const BlockParams& w, const Sequences& seq, Residual in, BlockActs& a, Steps steps,
                    const KvCache* cache) const {
  if (steps & kNorm1)
    run(ctx, AddNorm{.y = a.norm1,
                     .sum = in.delta ? a.x : Tensor{},
                     .mean = a.mean1,
                     .rstd = a.rstd1,
                     .x = in.x,
                     .delta = in.delta,
                     .w = w.norm1.w,
                     .b = w.norm1.b,
                     .kind = norm,
                     .eps = eps});
  mha.forward(ctx, w.mha, seq, a.norm1, a.mha, a.att_out, steps, cache);
  if (steps & kNorm2) {
    const bool sum_is_kept = !(steps & kOut);  // recomputation that kept h starts from it
    run(ctx, AddNorm{.y = a.norm2,
                     .sum = sum_is_kept ? Tensor{} : a.h,
                     .mean = a.mean2,
                     .rstd = a.rstd2,
                     .x = sum_is_kept ? a.h : a.x,
                     .delta = sum_is_kept ? Tensor{} : a.att_out,
                     .w = w.norm2.w,
                     .b = w.norm2.b,
                     .kind = norm,
                     .eps = eps});
  }
  mlp.forward(ctx, w.up, w.down, a.norm2, a.mlp, a.delta, steps);
}

void Block::backward(Context& ctx, const BlockParams& w, const BlockParams& g, const Sequences& seq, const BlockActs& a,
                     const Tensor& dx) const {
  Scope scope(ctx);
  const Tensor dy = ctx.tensor(dx.shape, dx.dtype, MemClass::kWorkspace);
  mlp.backward(ctx, w.up, w.down, g.up, g.down, a.norm2, a.mlp, dx, dy);
  run(ctx,
      AddNormGrad{
          .dx = dx, .dw = g.norm2.w, .db = g.norm2.b, .dy = dy, .x = a.h, .w = w.norm2.w, .mean = a.mean2, .rstd = a.rstd2, .kind = norm});
  mha.backward(ctx, w.mha, g.mha, seq, a.norm1, a.mha, dx, dy);
  run(ctx,
      AddNormGrad{
          .dx = dx, .dw = g.norm1.w, .db = g.norm1.b, .dy = dy, .x = a.x, .w = w.norm1.w, .mean = a.mean1, .rstd = a.rstd1, .kind = norm});
}

namespace {

// Gives memory to those fields of `a` that belong to the steps in `which`.
void allocate_steps(Context& ctx, const Block& b, const Sequences& seq, Dtype dtype, Steps which, BlockActs& a) {
  const std::int64_t n = seq.batch * seq.length, c = b.mha.width;
  auto rows = [&](std::int64_t columns) { return ctx.tensor({n, columns}, dtype, MemClass::kActivations); };
  auto stat = [&] { return ctx.tensor({n}, Dtype::kF32, MemClass::kActivations); };
  const bool layer_norm = b.norm == NormKind::kLayerNorm;
  if (which & kNorm1) {
    a.norm1 = rows(c);
    if (layer_norm) a.mean1 = stat();
    a.rstd1 = stat();
  }
  if (which & kQkv) {
    a.mha.qkv = rows(b.mha.qkv_columns());
    if (b.mha.qk_norm) {
      const std::int64_t heads = b.mha.heads + b.mha.kv_heads;
      a.mha.qk = rows(heads * b.mha.head_dim);
      a.mha.qk_rstd = ctx.tensor({n, heads}, Dtype::kF32, MemClass::kActivations);
    }
  }
  if (which & kAttention) {
    a.mha.att = rows(b.mha.heads * b.mha.head_dim);
    a.mha.lse =
        ctx.tensor(seq.cu_seqlens ? Shape{b.mha.heads, n} : Shape{seq.batch, b.mha.heads, seq.length}, Dtype::kF32, MemClass::kActivations);
  }
  if (which & kOut) a.h = rows(c);  // h is the sum with att_out: whoever recomputes one recomputes the other
  if (which & kNorm2) {
    a.norm2 = rows(c);
    if (layer_norm) a.mean2 = stat();
    a.rstd2 = stat();
  }
  if (which & kUp) a.mlp.up = rows(b.mlp.up_columns());
  if (which & kAct) a.mlp.act = rows(b.mlp.hidden);
}

}  // namespace

void allocate_acts(Context& ctx, const Block& block, const Sequences& seq, Recompute level, Dtype dtype, std::span<BlockActs> acts) {
  const std::int64_t n = seq.batch * seq.length, c = block.mha.width;
  const Steps shared_steps = recomputed_steps(level);
  BlockActs shared;
  shared.att_out = ctx.tensor({n, c}, dtype, MemClass::kActivations);
  shared.delta = ctx.tensor({n, c}, dtype, MemClass::kActivations);
  allocate_steps(ctx, block, seq, dtype, shared_steps, shared);
  for (BlockActs& a : acts) {
    a = shared;
    a.x = ctx.tensor({n, c}, dtype, MemClass::kActivations);
    allocate_steps(ctx, block, seq, dtype, kAllSteps & ~shared_steps, a);
  }
}

BlockActs allocate_inference_acts(Context& ctx, const Block& block, const Sequences& seq, Dtype dtype) {
  BlockActs acts;
  allocate_acts(ctx, block, seq, Recompute::kNone, dtype, {&acts, 1});
  return acts;
}

}  // namespace flashgpt
