// A GPT with explicit forward and backward.
//   stream = embedding(tokens) (+ positions);  blocks;  loss = cross_entropy(norm(stream) head^T, targets)
#pragma once
#include "model/config.h"
#include "model/layout.h"

namespace flashgpt {

// The tokens of a micro-batch, on the device: N = batch * length.
struct Batch {
  std::int64_t batch = 0, length = 0;
  Tensor tokens;      // int32 [N]
  Tensor targets;     // int32 [N], negative: not counted
  Tensor positions;   // int32 [N], from 0 in each document
  Tensor cu_seqlens;  // int32 [N + 1]: document bounds, the last repeated
};
Batch allocate_batch(Context& ctx, std::int64_t batch, std::int64_t length);

// Weights, or gradients, of a whole model.
struct GptParams {
  OuterParams outer;
  std::vector<BlockParams> blocks;
};
GptParams bind(const ModelConfig& c, const ParamTensors& tensors);

class Gpt {
 public:
  // Asks the context for the model's constants (slopes, frequencies); part of its setup section.
  Gpt(Context& ctx, const ModelConfig& config, attention::Implementation attention);

  const ModelConfig& config() const { return config_; }

  // Loss and gradients of one micro-batch: adds to scalars.loss_sum and to the gradients. One section of the arena.
  void forward_backward(Context& ctx, const OuterParams& w, WeightSource& blocks, const OuterParams& g, GradSink& block_grads,
                        const Batch& batch, const Tensor& scalars, Recompute recompute);

  // Loss alone: adds to scalars.loss_sum; losses fp32 [N] gets each token's, if wanted.
  void evaluate(Context& ctx, const OuterParams& w, WeightSource& blocks, const Batch& batch, const Tensor& scalars,
                const Tensor& losses) const;

  // Generation: runs length new tokens of each row through the caches (one a layer) and writes the logits after the last token of each row
  // that counts to logits fp32 [batch, V]; last is int32 [batch], the row of the N tokens that it is.
  void infer(Context& ctx, const OuterParams& w, WeightSource& blocks, const Batch& batch, const std::vector<KvCache>& caches,
             const Tensor& last, const Tensor& logits) const;

 private:
  Sequences sequences(const Batch& batch) const;
  // The states after the last norm [N, width], of a forward that keeps nothing; in the caller's Scope. caches: one a layer, or null.
  Tensor final_states(Context& ctx, const OuterParams& w, WeightSource& blocks, const Batch& batch, const Sequences& seq,
                      const std::vector<KvCache>* caches) const;
  void embed(Context& ctx, const OuterParams& w, const Batch& batch, const Tensor& y) const;
  const Tensor& head(const OuterParams& p) const { return p.head ? p.head : p.embedding; }

  ModelConfig config_;
  Block block_;
  Tensor inv_freq_, alibi_slopes_;
  std::vector<BlockActs> acts_;  // views of the micro-batch in flight; here so that a step asks for no host memory
};

}  // namespace flashgpt
