// The engine of a step: memory as planned, nothing allocated in a step, bad gradients skipped.
#include "train/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "allocations.h"

namespace flashgpt {
namespace {

constexpr std::int64_t kLength = 16;

EngineConfig tiny(OptimizerKind kind = OptimizerKind::kAdamW) {
  return {.model = {.layers = 2, .width = 32, .heads = 2, .vocab_size = 29, .context_len = kLength},
          .optimizer = {.kind = kind},
          .micro_batch = 2,
          .context_len = kLength};
}

// Counting upwards: easy to learn.
struct Data {
  std::vector<std::int32_t> tokens, targets, positions, cu;
  Data() {
    for (std::int32_t i = 0; i < 2 * kLength; ++i) {
      tokens.push_back(i % 29);
      targets.push_back((i + 1) % 29);
      positions.push_back(i % kLength);
      cu.push_back(std::min<std::int32_t>(i * kLength, 2 * kLength));
    }
    cu.push_back(2 * kLength);
  }
  HostBatch batch() const { return {tokens.data(), targets.data(), positions.data(), cu.data()}; }
};

StepResult step(Engine& e, const Data& d, std::int64_t update, double rate = 3e-3) {
  e.begin_step({.learning_rate = rate, .targets = 2 * kLength, .update = update, .max_norm = 1.0});
  e.micro_step(d.batch());
  return e.end_step();
}

TEST(Engine, LearnsWithBothOptimizers) {
  ThreadPool pool(2, false);
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdafactor}) {
    EngineConfig config = tiny(kind);
    config.optimizer.learning_rate = 3e-3;
    Engine e(cpu_target(2), config, pool);
    e.initialise_weights(1);
    const Data d;
    const double first = step(e, d, 1).loss_sum / (2 * kLength);
    EXPECT_NEAR(first, std::log(29.0), 0.3);
    double last = first;
    for (int i = 2; i <= 60; ++i) last = step(e, d, i).loss_sum / (2 * kLength);
    EXPECT_LT(last, 0.3 * first) << name_of(kind);
  }
}

TEST(Engine, AStepAllocatesNothing) {
  ThreadPool pool(2, false);
  for (Recompute level : {Recompute::kNone, Recompute::kBlock}) {
    EngineConfig config = tiny();
    config.recompute = level;
    Engine e(cpu_target(2), config, pool);
    e.initialise_weights(1);
    const Data d;
    step(e, d, 1);
    const std::int64_t before = testing::allocations();
    step(e, d, 2);
    e.evaluate(d.batch());
    EXPECT_EQ(testing::allocations(), before);
    EXPECT_GT(before, 0);
  }
}

TEST(Engine, ThePlanNamesEveryByteOfWeightsGradientsAndOptimizer) {
  const EngineConfig config = tiny();
  const MemoryPlan plan = Engine::plan(cpu_target(2), config);
  ThreadPool pool(2, false);
  Engine e(cpu_target(2), config, pool);
  const auto classes = plan.by_class();
  auto bytes = [&](MemClass c) { return classes[static_cast<std::size_t>(c)]; };
  EXPECT_EQ(e.memory_plan().total_bytes(), plan.total_bytes());
  std::size_t weights = 0;
  for (const auto& g : e.weights().groups)
    for (const Tensor& t : {g.decayed, g.plain}) weights += t ? t.bytes() : 0;
  EXPECT_EQ(bytes(MemClass::kWeights), weights);
  EXPECT_EQ(bytes(MemClass::kGradients), weights);
  EXPECT_EQ(bytes(MemClass::kOptimizer), 2 * weights);
  EXPECT_GE(weights, static_cast<std::size_t>(count(e.params())) * 4);
  EngineConfig block = config;
  block.recompute = Recompute::kBlock;
  EXPECT_LT(Engine::plan(cpu_target(2), block).total_bytes(), plan.total_bytes());
}

// TRAINING.md's faults 6, 9 and 10 of other trainers: a non-finite gradient must change nothing, on every step, and be counted once.
TEST(Engine, ABadGradientSkipsExactlyOneUpdate) {
  ThreadPool pool(1, false);
  Engine e(cpu_target(1), tiny(), pool);
  e.initialise_weights(1);
  const Data d;
  EXPECT_FALSE(step(e, d, 1).skipped);
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<std::vector<float>> before;
    for (const Tensor& t : e.weights().tensors) before.emplace_back(t.as<float>(), t.as<float>() + t.numel());
    for (const NamedTensor& s : e.optimizer_state()) before.emplace_back(s.tensor.as<float>(), s.tensor.as<float>() + s.tensor.numel());
    e.begin_step({.learning_rate = 1e-3, .targets = 2 * kLength, .update = 2, .max_norm = 1.0});
    e.micro_step(d.batch());
    e.grads().tensors[3].as<float>()[1] = bad;
    EXPECT_TRUE(e.end_step().skipped);
    auto next = before.begin();
    auto same = [&](const Tensor& t) {
      const std::vector<float>& kept = *next++;
      return std::equal(kept.begin(), kept.end(), t.as<float>());
    };
    for (const Tensor& t : e.weights().tensors) EXPECT_TRUE(same(t));
    for (const NamedTensor& s : e.optimizer_state()) EXPECT_TRUE(same(s.tensor)) << s.name;
  }
  EXPECT_FALSE(step(e, d, 2).skipped);
}

TEST(Engine, BadSizesAreErrors) {
  EngineConfig c = tiny();
  c.micro_batch = 0;
  EXPECT_THROW(Engine::plan(cpu_target(1), c), Error);
  c = tiny();
  c.context_len = 17;  // longer than the position table
  EXPECT_THROW(Engine::plan(cpu_target(1), c), Error);
  c = tiny();
  c.model.heads = 5;
  EXPECT_THROW(Engine::plan(cpu_target(1), c), Error);
  c = tiny();
  c.optimizer = {.kind = OptimizerKind::kAdafactor, .learning_rate = 1e-3, .relative_step = true};
  EXPECT_THROW(Engine::plan(cpu_target(1), c), Error);
}

}  // namespace
}  // namespace flashgpt
