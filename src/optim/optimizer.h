// An optimizer is state beside the parameters and one update. The update reads everything that changes from step to step in the step
// scalars.
#pragma once
#include <optional>
#include <string>

#include "nn/params.h"
#include "optim/ops.h"

namespace flashgpt {

enum class OptimizerKind : std::uint8_t { kAdamW, kAdafactor };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  std::optional<double> learning_rate;  // absent: AdamW's default; Adafactor's relative step
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;   // of matrices; none on norms and biases
  bool relative_step = false;  // Adafactor: asked for by name; an error beside a learning rate
  bool relative() const { return kind == OptimizerKind::kAdafactor && !learning_rate; }
};

OptimizerKind optimizer_named(const std::string& name);
const char* name_of(OptimizerKind k);
void check(const OptimizerConfig& c);

// A tensor of the optimizer's state, by the name it has in a checkpoint: "blocks.0.qkv.w.m".
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

class Optimizer {
 public:
  Optimizer(Context& ctx, const OptimizerConfig& config, const ParamList& params);

  // scalars.norm_sq and the skip flag from the gradients of all micro-batches, then the update of every parameter.
  void step(Context& ctx, const ParamList& params, const ParamTensors& weights, const ParamTensors& grads, const Tensor& scalars) const;

  void zero_state(Context& ctx) const;
  const std::vector<NamedTensor>& state() const { return state_; }

 private:
  OptimizerConfig config_;
  ParamTensors m_, v_;             // AdamW
  std::vector<Tensor> row_, col_;  // Adafactor, one a parameter
  std::vector<NamedTensor> state_;
};

}  // namespace flashgpt
