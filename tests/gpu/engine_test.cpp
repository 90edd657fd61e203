// A model on the GPU beside the same model on the CPU. Runs with FLASHGPT_TEST_DEVICE=cuda.
#include "train/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/copy.h"
#include "infer/generate.h"
#include "on_gpu.h"

namespace flashgpt {
namespace {

using flashgpt::testing::on_gpu;

constexpr std::int64_t kLength = 48, kRows = 3, kVocab = 61;

ModelConfig tiny(Family family) {
  ModelConfig c{.family = family, .layers = 2, .width = 64, .heads = 4, .mlp_hidden = 96, .vocab_size = kVocab, .context_len = kLength};
  if (family == Family::kLlama) c.kv_heads = 2;
  return c;
}

// Rows of several documents, with an ignored target at the end of each.
struct Data {
  std::vector<std::int32_t> tokens, targets, positions, cu_seqlens;
  std::int64_t valid = 0;
  Data() {
    std::uint32_t seed = 3;
    std::int32_t position = 0;
    for (std::int32_t i = 0; i < kRows * kLength; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const bool starts = i % kLength == 0 || i % 19 == 7;
      if (starts) cu_seqlens.push_back(i), position = 0;
      tokens.push_back(static_cast<std::int32_t>(seed >> 8) % 7 * 3);
      positions.push_back(position++);
      const bool ends = (i + 1) % kLength == 0 || (i + 1) % 19 == 7;
      targets.push_back(ends ? -1 : static_cast<std::int32_t>(tokens.back() + 1) % kVocab);
      valid += !ends;
    }
    while (cu_seqlens.size() < tokens.size() + 1) cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  HostBatch batch() const { return {tokens.data(), targets.data(), positions.data(), cu_seqlens.data()}; }
};

std::vector<float> values(Engine& e, const Tensor& t) {
  std::vector<float> v(static_cast<std::size_t>(t.numel()));
  download(e.context(), t, v.data());
  return v;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> grads, weights;
};

Outcome run_steps(const Target& target, const EngineConfig& config, int steps) {
  ThreadPool pool(1, false);
  const Data data;
  Engine e(target, config, pool);
  e.initialise_weights(5);
  Outcome r;
  for (int s = 1; s <= steps; ++s) {
    e.begin_step({.learning_rate = 3e-3, .targets = data.valid, .update = s, .max_norm = 1});
    e.micro_step(data.batch());
    if (s == 1)
      for (const Tensor& g : e.grads().tensors) r.grads.push_back(values(e, g));
    r.losses.push_back(e.end_step().loss_sum / static_cast<double>(data.valid));
  }
  for (const Tensor& w : e.weights().tensors) r.weights.push_back(values(e, w));
  return r;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

class OnGpu : public ::testing::TestWithParam<Family> {
  void SetUp() override {
    if (!on_gpu()) GTEST_SKIP() << "runs with FLASHGPT_TEST_DEVICE=cuda";
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, OnGpu, ::testing::Values(Family::kGpt2, Family::kLlama, Family::kMpt),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(OnGpu, GradientsAndTrainingFollowTheCpu) {
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdafactor}) {
    const EngineConfig config{.model = tiny(GetParam()), .optimizer = {.kind = kind}, .micro_batch = kRows, .context_len = kLength};
    const Outcome cpu = run_steps(cpu_target(1), config, 20), gpu = run_steps(cuda::gpu_target(0), config, 20);
    for (std::size_t i = 0; i < cpu.grads.size(); ++i)
      EXPECT_LE(relative_difference(gpu.grads[i], cpu.grads[i]), 2e-5) << "parameter " << i;
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-3) << "step " << i + 1;
    EXPECT_LT(gpu.losses.back(), 0.95 * gpu.losses.front());
  }
}

TEST_P(OnGpu, RunsAndRecomputeLevelsGiveTheSameBits) {
  EngineConfig config{.model = tiny(GetParam()), .micro_batch = kRows, .context_len = kLength};
  const Outcome first = run_steps(cuda::gpu_target(0), config, 3);
  for (Recompute level : {Recompute::kNone, Recompute::kMlp, Recompute::kBlock}) {
    config.recompute = level;
    const Outcome r = run_steps(cuda::gpu_target(0), config, 3);
    EXPECT_EQ(r.losses, first.losses);
    EXPECT_EQ(r.weights, first.weights);
  }
}

TEST_P(OnGpu, GreedyTextIsThatOfTheCpu) {
  ThreadPool pool(1, false);
  const std::vector<std::vector<std::int32_t>> prompts = {{3}, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {1, 2, 3, 4}};
  std::vector<std::vector<std::int32_t>> texts[2];
  for (int side : {0, 1}) {
    InferenceEngine e(side ? cuda::gpu_target(0) : cpu_target(1), {.model = tiny(GetParam()), .batch = 3, .capacity = 40, .chunk = 4},
                      pool);
    initialise(e.context(), e.params(), e.weights(), 11);
    texts[side] = prompts;
    generate(e, prompts, {.sampling = {.temperature = 0}, .max_new_tokens = 20}, [&](std::int64_t row, std::int32_t token) {
      texts[side][static_cast<std::size_t>(row)].push_back(token);
      return true;
    });
  }
  EXPECT_EQ(texts[1], texts[0]);
}

}  // namespace
}  // namespace flashgpt
