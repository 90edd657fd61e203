#include "model/gpt.h"

#include "core/copy.h"
#include "ops/embedding.h"
#include "ops/linear_cross_entropy.h"

namespace flashgpt {
namespace {

constexpr Dtype kActivationDtype = Dtype::kF32;

Block block_of(const ModelConfig& c, attention::Implementation attention) {
  Block b;
  b.norm = c.family == Family::kLlama ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  b.eps = static_cast<float>(c.norm_eps);
  b.mha = {.width = c.width,
           .heads = c.heads,
           .kv_heads = c.kv_heads,
           .head_dim = c.head_dim,
           .window = c.window,
           .qk_norm = c.qk_norm,
           .qk_norm_eps = b.eps,
           .implementation = attention};
  b.mlp = {.width = c.width, .hidden = c.mlp_hidden};
  switch (c.family) {
    case Family::kGpt2: b.mlp.activation = Activation::kGeluTanh; break;
    case Family::kLlama: b.mlp.activation = Activation::kSwiGlu; break;
    case Family::kMpt: b.mlp.activation = Activation::kGelu; break;
  }
  return b;
}

}  // namespace

Batch allocate_batch(Context& ctx, std::int64_t batch, std::int64_t length) {
  const std::int64_t n = batch * length;
  auto ints = [&](std::int64_t count) { return ctx.tensor({count}, Dtype::kI32, MemClass::kInputs); };
  return {.batch = batch, .length = length, .tokens = ints(n), .targets = ints(n), .positions = ints(n), .cu_seqlens = ints(n + 1)};
}

GptParams bind(const ModelConfig& c, const ParamTensors& tensors) {
  GptParams p;
  p.blocks.resize(static_cast<std::size_t>(c.layers));
  std::size_t next = 0;
  auto take = [&](const char*, Tensor& t, Shape, Init) { t = tensors.tensors.at(next++); };
  for_each_outer(c, p.outer, take);
  for (BlockParams& b : p.blocks) for_each_block(c, b, take);
  return p;
}

Gpt::Gpt(Context& ctx, const ModelConfig& config, attention::Implementation attention)
    : config_(complete(config)), block_(block_of(config_, attention)), acts_(static_cast<std::size_t>(config_.layers)) {
  if (config_.family == Family::kLlama) {
    const std::vector<float> freq = rope_frequencies(config_);
    inv_freq_ = ctx.tensor({config_.head_dim / 2}, Dtype::kF32, MemClass::kInputs);
    upload(ctx, inv_freq_, freq.data());
  }
  if (config_.family == Family::kMpt) {
    std::vector<float> slopes(static_cast<std::size_t>(config_.heads));
    attention::alibi_slopes(config_.heads, slopes.data());
    alibi_slopes_ = ctx.tensor({config_.heads}, Dtype::kF32, MemClass::kInputs);
    upload(ctx, alibi_slopes_, slopes.data());
  }
}

Sequences Gpt::sequences(const Batch& batch) const {
  return {.batch = batch.batch,
          .length = batch.length,
          .positions = batch.positions,
          .cu_seqlens = batch.cu_seqlens,
          .inv_freq = inv_freq_,
          .alibi_slopes = alibi_slopes_};
}

void Gpt::embed(Context& ctx, const OuterParams& w, const Batch& batch, const Tensor& y) const {
  run(ctx, Embedding{.y = y,
                     .tokens = batch.tokens,
                     .table = w.embedding,
                     .positions = w.positions ? batch.positions : Tensor{},
                     .position_table = w.positions});
}

void Gpt::forward_backward(Context& ctx, const OuterParams& w, WeightSource& blocks, const OuterParams& g, GradSink& block_grads,
                           const Batch& batch, const Tensor& scalars, Recompute recompute) {
  const int layers = static_cast<int>(config_.layers);
  const std::int64_t n = batch.batch * batch.length;
  const Sequences seq = sequences(batch);
  const Steps again = recomputed_steps(recompute);

  Scope scope(ctx);
  allocate_acts(ctx, block_, seq, recompute, kActivationDtype, acts_);
  auto rows = [&] { return ctx.tensor({n, config_.width}, kActivationDtype, MemClass::kActivations); };
  auto stat = [&] { return ctx.tensor({n}, Dtype::kF32, MemClass::kActivations); };

  embed(ctx, w, batch, acts_[0].x);
  Residual stream{.x = acts_[0].x};
  for (int l = 0; l < layers; ++l) {
    BlockActs& a = acts_[static_cast<std::size_t>(l)];
    if (l + 1 < layers) blocks.prefetch(l + 1);
    block_.forward(ctx, blocks.acquire(l), seq, stream, a);
    blocks.release(l);
    stream = {.x = a.h, .delta = a.delta};
  }

  const Tensor final_x = rows(), final_y = rows(), final_mean = stat(), final_rstd = stat(), dx = rows(), dy = rows();
  const bool layer_norm = block_.norm == NormKind::kLayerNorm;
  run(ctx, AddNorm{.y = final_y,
                   .sum = final_x,
                   .mean = layer_norm ? final_mean : Tensor{},
                   .rstd = final_rstd,
                   .x = stream.x,
                   .delta = stream.delta,
                   .w = w.final_norm.w,
                   .b = w.final_norm.b,
                   .kind = block_.norm,
                   .eps = block_.eps});
  run(ctx, LinearCrossEntropy{.scalars = scalars, .dx = dy, .dw = head(g), .x = final_y, .w = head(w), .targets = batch.targets});
  run(ctx, Fill{.y = dx, .value = 0});
  run(ctx, AddNormGrad{.dx = dx,
                       .dw = g.final_norm.w,
                       .db = g.final_norm.b,
                       .dy = dy,
                       .x = final_x,
                       .w = w.final_norm.w,
                       .mean = layer_norm ? final_mean : Tensor{},
                       .rstd = final_rstd,
                       .kind = block_.norm});

  for (int l = layers - 1; l >= 0; --l) {
    BlockActs& a = acts_[static_cast<std::size_t>(l)];
    if (l > 0) blocks.prefetch(l - 1);
    const BlockParams& weights = blocks.acquire(l);
    block_.forward(ctx, weights, seq, {.x = a.x}, a, again);
    block_.backward(ctx, weights, block_grads.acquire(l), seq, a, dx);
    block_grads.done(l);
    blocks.release(l);
  }
  run(ctx, EmbeddingGrad{.dtable = g.embedding,
                         .dposition_table = g.positions,
                         .dy = dx,
                         .tokens = batch.tokens,
                         .positions = g.positions ? batch.positions : Tensor{}});
}

Tensor Gpt::final_states(Context& ctx, const OuterParams& w, WeightSource& blocks, const Batch& batch, const Sequences& seq,
                         const std::vector<KvCache>* caches) const {
  BlockActs a = allocate_inference_acts(ctx, block_, seq, kActivationDtype);
  embed(ctx, w, batch, a.x);
  Residual stream{.x = a.x};
  for (int l = 0; l < static_cast<int>(config_.layers); ++l) {
    const KvCache* cache = caches ? &(*caches)[static_cast<std::size_t>(l)] : nullptr;
    block_.forward(ctx, blocks.acquire(l), seq, stream, a, kAllSteps, cache);
    blocks.release(l);
    stream = {.x = a.h, .delta = a.delta};
  }
  run(ctx, AddNorm{.y = a.norm1,
                   .sum = a.x,
                   .mean = a.mean1,
                   .rstd = a.rstd1,
                   .x = stream.x,
                   .delta = stream.delta,
                   .w = w.final_norm.w,
                   .b = w.final_norm.b,
                   .kind = block_.norm,
                   .eps = block_.eps});
  return a.norm1;
}

void Gpt::evaluate(Context& ctx, const OuterParams& w, WeightSource& blocks, const Batch& batch, const Tensor& scalars,
                   const Tensor& losses) const {
  Scope scope(ctx);
  const Tensor x = final_states(ctx, w, blocks, batch, sequences(batch), nullptr);
  run(ctx, LinearCrossEntropy{.scalars = scalars, .losses = losses, .x = x, .w = head(w), .targets = batch.targets});
}

void Gpt::infer(Context& ctx, const OuterParams& w, WeightSource& blocks, const Batch& batch, const std::vector<KvCache>& caches,
                const Tensor& last, const Tensor& logits) const {
  require(caches.size() == static_cast<std::size_t>(config_.layers), "infer: ", caches.size(), " caches, expected one for each of ",
          config_.layers, " layers");
  Sequences seq = sequences(batch);
  seq.cu_seqlens = {};
  Scope scope(ctx);
  const Tensor x = final_states(ctx, w, blocks, batch, seq, &caches);
  const Tensor rows = ctx.tensor({batch.batch, config_.width}, kActivationDtype, MemClass::kWorkspace);
  run(ctx, Embedding{.y = rows, .tokens = last, .table = x});  // picks rows
  run(ctx, Gemm{.c = logits, .a = rows, .b = head(w), .trans_b = true});
}

}  // namespace flashgpt
