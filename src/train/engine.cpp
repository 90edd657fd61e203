#include "train/engine.h"

#include <cstring>

#include "core/copy.h"
#include "core/cuda/gpu.h"

namespace flashgpt {

MemoryPlan Engine::plan(const Target& target, const EngineConfig& config) {
  Engine recording(Context{.target = target, .arena = Arena(target.device)}, config);
  if (config.train) {
    recording.run_zero_grads();
    recording.run_micro_step();
    recording.run_update();
  }
  recording.run_evaluate();
  return recording.ctx_.arena.plan();
}

Engine::Engine(Context ctx, const EngineConfig& config) : ctx_(std::move(ctx)), config_(config) { setup(config); }

Engine::Engine(const Target& target, const EngineConfig& config, ThreadPool& pool, Trace* trace) : config_(config) {
  MemoryPlan memory_plan = plan(target, config);
  const CudaStream queue = cuda::queue_of(target);
  memory_ = Memory(memory_plan.total_bytes(), target.device);
  ctx_ = Context{.target = target,
                 .arena = Arena(std::move(memory_plan), memory_.data(), target.device),
                 .pool = &pool,
                 .cuda = queue,
                 .trace = trace};
  setup(config);
}

void Engine::setup(const EngineConfig& config) {
  config_.model = complete(config.model);
  require(config.micro_batch > 0, "train_params.micro_batch = ", config.micro_batch, ", expected a positive number");
  require(config.context_len > 0, "train_params.context_len = ", config.context_len, ", expected a positive number");
  require(config_.model.family != Family::kGpt2 || config.context_len <= config_.model.context_len,
          "train_params.context_len = ", config.context_len, ", but the model has positions for ", config_.model.context_len);
  params_ = parameters(config_.model);
  weights_ = allocate(ctx_, params_, Dtype::kF32, MemClass::kWeights);
  w_ = bind(config_.model, weights_);
  block_weights_.blocks = w_.blocks;
  if (config.train) {
    grads_ = allocate(ctx_, params_, Dtype::kF32, MemClass::kGradients);
    g_ = bind(config_.model, grads_);
    block_grads_.blocks = g_.blocks;
    optimizer_.emplace(ctx_, config_.optimizer, params_);
  }
  batch_ = allocate_batch(ctx_, config_.micro_batch, config_.context_len);
  scalars_ = ctx_.tensor({sizeof(StepScalars)}, Dtype::kU8, MemClass::kInputs);
  losses_ = ctx_.tensor({config_.micro_batch * config_.context_len}, Dtype::kF32, MemClass::kInputs);
  model_.emplace(ctx_, config_.model, config_.attention);
}

void Engine::initialise_weights(std::uint64_t seed) {
  initialise(ctx_, params_, weights_, seed);
  if (optimizer_) optimizer_->zero_state(ctx_);
}

void Engine::run_zero_grads() {
  ctx_.arena.begin("zero_grads");
  fill_zero(ctx_, grads_);
}

void Engine::run_micro_step() {
  ctx_.arena.begin("micro_step");
  model_->forward_backward(ctx_, w_.outer, block_weights_, g_.outer, block_grads_, batch_, scalars_, config_.recompute);
}

void Engine::run_update() {
  ctx_.arena.begin("update");
  optimizer_->step(ctx_, params_, weights_, grads_, scalars_);
}

void Engine::run_evaluate() {
  ctx_.arena.begin("evaluate");
  model_->evaluate(ctx_, w_.outer, block_weights_, batch_, scalars_, losses_);
}

void Engine::upload_batch(const HostBatch& b) {
  upload(ctx_, batch_.tokens, b.tokens);
  upload(ctx_, batch_.targets, b.targets);
  upload(ctx_, batch_.positions, b.positions);
  upload(ctx_, batch_.cu_seqlens, b.cu_seqlens);
}

void Engine::begin_step(const StepInputs& in) {
  StepScalars s;
  s.learning_rate = static_cast<float>(in.learning_rate);
  s.inv_targets = in.targets > 0 ? static_cast<float>(1.0 / static_cast<double>(in.targets)) : 0.0f;
  s.max_norm = static_cast<float>(in.max_norm);
  s.step = static_cast<std::int32_t>(in.update);
  upload(ctx_, scalars_, &s);
  run_zero_grads();
}

void Engine::micro_step(const HostBatch& batch) {
  upload_batch(batch);
  run_micro_step();
}

StepResult Engine::end_step() {
  run_update();
  StepScalars s;
  download(ctx_, scalars_, &s);
  return {.loss_sum = s.loss_sum, .grad_norm = s.grad_norm, .skipped = s.skip != 0};
}

double Engine::evaluate(const HostBatch& batch, float* losses) {
  const StepScalars zero;
  upload(ctx_, scalars_, &zero);
  upload_batch(batch);
  run_evaluate();
  StepScalars s;
  download(ctx_, scalars_, &s);
  if (losses) download(ctx_, losses_, losses);
  return s.loss_sum;
}

}  // namespace flashgpt
