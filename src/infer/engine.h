// A model in use: weights, one KV cache a layer, and two fixed shapes of work (a chunk of a prompt, a single token), so that memory is
// known before the first token and never grows. Rows of a batch have lengths of their own.
#pragma once
#include <optional>
#include <span>

#include "core/memory.h"
#include "model/gpt.h"

namespace flashgpt {

struct InferenceConfig {
  ModelConfig model;
  std::int64_t batch = 1;
  std::int64_t capacity = 1024;  // tokens that a row's cache holds, prompt included
  std::int64_t chunk = 128;      // tokens of a prompt that go through at a time
};

class InferenceEngine {
 public:
  static MemoryPlan plan(const Target& target, const InferenceConfig& config);
  InferenceEngine(const Target& target, const InferenceConfig& config, ThreadPool& pool);

  const InferenceConfig& config() const { return config_; }
  Context& context() { return ctx_; }
  const ParamList& params() const { return params_; }
  const ParamTensors& weights() const { return weights_; }

  void reset();  // empties the caches
  std::int64_t length(std::int64_t row) const { return lengths_[static_cast<std::size_t>(row)]; }

  // Appends tokens[row] (any number, none too) to each row. Afterwards logits(row) are those after the last token of each row that got
  // some. Error when a row would pass the capacity; then nothing is appended.
  void feed(std::span<const std::span<const std::int32_t>> tokens);
  std::span<const float> logits(std::int64_t row) const;

 private:
  InferenceEngine(Context ctx, const InferenceConfig& config);  // recording
  void setup();
  void pass(const Batch& batch, const char* section);  // one forward over the uploaded tokens

  Memory memory_;
  Context ctx_;
  InferenceConfig config_;
  ParamList params_;
  ParamTensors weights_;
  GptParams w_;
  LocalWeights block_weights_;
  std::optional<Gpt> model_;
  Batch prompt_, single_;
  std::vector<KvCache> caches_;
  Tensor starts_, new_lengths_, end_lengths_, last_, device_logits_;
  std::vector<std::int64_t> lengths_;
  std::vector<float> logits_, pass_logits_;
};

}  // namespace flashgpt
