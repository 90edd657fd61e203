// A model in training: its memory, and the three things that a step is made of. The same code runs in a recording, which gives the memory
// plan, and for real; data.h's buffers come in as plain host memory.
#pragma once
#include <memory>
#include <optional>

#include "core/memory.h"
#include "model/gpt.h"
#include "optim/optimizer.h"

namespace flashgpt {

// What decides the memory and the arithmetic of a step.
struct EngineConfig {
  ModelConfig model;
  OptimizerConfig optimizer;
  std::int64_t micro_batch = 1;  // rows of a forward and backward
  std::int64_t context_len = 1024;
  Recompute recompute = Recompute::kNone;
  attention::Implementation attention = attention::Implementation::kAuto;
  bool train = true;  // false: evaluate() only, without memory for gradients and optimizer
};

// A micro-batch in host memory: micro_batch x context_len values each; cu_seqlens one more.
struct HostBatch {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
  const std::int32_t* positions = nullptr;
  const std::int32_t* cu_seqlens = nullptr;
};

struct StepInputs {
  double learning_rate = 0;  // absolute, or Adafactor's relative step size
  std::int64_t targets = 0;  // valid targets of all micro-batches of the step
  std::int64_t update = 1;   // 1 at the first update: skipped steps do not count
  double max_norm = 0;       // clip gradients to this global norm; 0: do not
};

struct StepResult {
  double loss_sum = 0;  // over the targets of the step
  double grad_norm = 0;
  bool skipped = false;  // loss or gradient was not finite, nothing was changed
};

class Engine {
 public:
  // Bytes that a run needs, by class, without allocating them.
  static MemoryPlan plan(const Target& target, const EngineConfig& config);

  Engine(const Target& target, const EngineConfig& config, ThreadPool& pool, Trace* trace = nullptr);

  void initialise_weights(std::uint64_t seed);

  // begin_step, micro_step for each micro-batch, end_step.
  void begin_step(const StepInputs& in);
  void micro_step(const HostBatch& batch);
  StepResult end_step();

  // Adds up the losses of a micro-batch; losses (host, N floats) gets each token's if not null.
  double evaluate(const HostBatch& batch, float* losses = nullptr);

  Context& context() { return ctx_; }
  const ParamList& params() const { return params_; }
  const ParamTensors& weights() const { return weights_; }
  const ParamTensors& grads() const { return grads_; }
  const std::vector<NamedTensor>& optimizer_state() const { return optimizer_->state(); }
  const MemoryPlan& memory_plan() const { return ctx_.arena.plan(); }

 private:
  Engine(Context ctx, const EngineConfig& config);  // recording
  void setup(const EngineConfig& config);
  void upload_batch(const HostBatch& batch);
  void run_zero_grads();
  void run_micro_step();
  void run_update();
  void run_evaluate();

  Memory memory_;
  Context ctx_;
  EngineConfig config_;
  ParamList params_;
  ParamTensors weights_, grads_;
  GptParams w_, g_;
  LocalWeights block_weights_;
  LocalGrads block_grads_;
  std::optional<Gpt> model_;
  std::optional<Optimizer> optimizer_;
  Batch batch_;
  Tensor scalars_, losses_;
};

}  // namespace flashgpt
