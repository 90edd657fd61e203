#include "optim/optimizer.h"

#include "core/copy.h"

namespace flashgpt {

const char* name_of(OptimizerKind k) { return k == OptimizerKind::kAdamW ? "adamw" : "adafactor"; }

OptimizerKind optimizer_named(const std::string& name) {
  for (OptimizerKind k : {OptimizerKind::kAdamW, OptimizerKind::kAdafactor})
    if (name == name_of(k)) return k;
  fail("train_params.optimizer = ", name, ", expected adamw or adafactor");
}

void check(const OptimizerConfig& c) {
  require(!c.learning_rate || *c.learning_rate > 0, "train_params.learning_rate = ", c.learning_rate.value_or(0),
          ", expected a positive number");
  require(!(c.relative_step && c.learning_rate), "train_params.relative_step = true beside learning_rate = ", c.learning_rate.value_or(0),
          ": the relative step makes its own rate; leave one of them out");
  require(!c.relative_step || c.kind == OptimizerKind::kAdafactor, "train_params.relative_step = true, expected optimizer adafactor");
  for (const auto& [name, beta] : {std::pair{"beta1", c.beta1}, std::pair{"beta2", c.beta2}})
    require(beta >= 0 && beta < 1, "train_params.", name, " = ", beta, ", expected a number in [0, 1)");
  require(c.weight_decay >= 0, "train_params.weight_decay = ", c.weight_decay, ", expected a number of at least 0");
}

Optimizer::Optimizer(Context& ctx, const OptimizerConfig& config, const ParamList& params) : config_(config) {
  check(config);
  if (config.kind == OptimizerKind::kAdamW) {
    m_ = allocate(ctx, params, Dtype::kF32, MemClass::kOptimizer);
    v_ = allocate(ctx, params, Dtype::kF32, MemClass::kOptimizer);
    for (std::size_t i = 0; i < params.size(); ++i) {
      state_.push_back({params[i].name + ".m", m_.tensors[i]});
      state_.push_back({params[i].name + ".v", v_.tensors[i]});
    }
    return;
  }
  auto vector = [&](std::int64_t n) { return ctx.tensor({n}, Dtype::kF32, MemClass::kOptimizer); };
  for (const ParamSpec& p : params) {
    const bool matrix = p.shape.rank == 2;
    row_.push_back(matrix ? vector(p.shape[0]) : Tensor{});
    col_.push_back(vector(p.shape[-1]));
    if (matrix) state_.push_back({p.name + ".row", row_.back()});
    state_.push_back({p.name + ".col", col_.back()});
  }
}

void Optimizer::zero_state(Context& ctx) const {
  for (const NamedTensor& s : state_) run(ctx, Fill{.y = s.tensor, .value = 0});
  fill_zero(ctx, m_);  // the padding between parameters too
  fill_zero(ctx, v_);
}

void Optimizer::step(Context& ctx, const ParamList& params, const ParamTensors& weights, const ParamTensors& grads,
                     const Tensor& scalars) const {
  for (const ParamTensors::Group& g : grads.groups)
    for (const Tensor& flat : {g.decayed, g.plain})
      if (flat) run(ctx, SumSquares{.scalars = scalars, .g = flat});
  run(ctx, FinishNorm{.scalars = scalars});

  if (config_.kind == OptimizerKind::kAdamW) {
    AdamW op{.scalars = scalars,
             .beta1 = static_cast<float>(config_.beta1),
             .beta2 = static_cast<float>(config_.beta2),
             .eps = static_cast<float>(config_.eps)};
    for (std::size_t i = 0; i < weights.groups.size(); ++i)
      for (Tensor ParamTensors::Group::*range : {&ParamTensors::Group::decayed, &ParamTensors::Group::plain}) {
        op.w = weights.groups[i].*range;
        if (!op.w) continue;
        op.m = m_.groups[i].*range;
        op.v = v_.groups[i].*range;
        op.g = grads.groups[i].*range;
        op.weight_decay = range == &ParamTensors::Group::decayed ? static_cast<float>(config_.weight_decay) : 0.0f;
        run(ctx, op);
      }
    return;
  }
  for (std::size_t i = 0; i < params.size(); ++i)
    run(ctx, Adafactor{.w = weights.tensors[i],
                       .row = row_[i],
                       .col = col_[i],
                       .g = grads.tensors[i],
                       .scalars = scalars,
                       .weight_decay = params[i].decay ? static_cast<float>(config_.weight_decay) : 0.0f,
                       .relative_step = config_.relative()});
}

}  // namespace flashgpt
