// The model as a whole: gradients against finite differences, recompute levels, threads and accumulation against each other.
#include "model/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "train/engine.h"

namespace flashgpt {
namespace {

constexpr std::int64_t kRows = 2, kLength = 24;

ModelConfig tiny(Family family) {
  ModelConfig c{.family = family, .layers = 2, .width = 32, .heads = 4, .mlp_hidden = 48, .vocab_size = 37, .context_len = kLength};
  if (family == Family::kLlama) c.kv_heads = 2;
  return c;
}

struct Variant {
  const char* name;
  ModelConfig model;
};
void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }

std::vector<Variant> variants() {
  const ModelConfig llama = tiny(Family::kLlama);
  ModelConfig llama3 = llama, mistral = llama, qwen2 = llama, qwen3 = llama;
  llama3.head_dim = 6;
  llama3.tie_embeddings = 1;
  llama3.rope_scaling = RopeScaling::kLlama3;
  llama3.rope_factor = 8;
  llama3.rope_original_context = 16;
  llama3.rope_theta = 300;
  mistral.window = 3;
  qwen2.qkv_bias = true;
  qwen3.qk_norm = true;
  qwen3.head_dim = 10;
  qwen3.window = 5;
  return {{"gpt2", tiny(Family::kGpt2)}, {"llama", llama}, {"llama3", llama3}, {"mistral", mistral}, {"qwen2", qwen2}, {"qwen3", qwen3},
          {"mpt", tiny(Family::kMpt)}};
}

// Two rows of random tokens, cut in documents; some targets are ignored.
struct Data {
  std::vector<std::int32_t> tokens, targets, positions, cu_seqlens;
  std::int64_t valid = 0;

  explicit Data(std::int64_t rows, std::uint32_t seed = 1) {
    const std::int64_t n = rows * kLength;
    std::int32_t position = 0;
    cu_seqlens.push_back(0);
    for (std::int64_t i = 0; i < n; ++i) {
      seed = seed * 1664525u + 1013904223u;
      if (i > 0 && (i % kLength == 0 || i % 11 == 0)) {
        cu_seqlens.push_back(static_cast<std::int32_t>(i));
        position = 0;
      }
      tokens.push_back(static_cast<std::int32_t>((seed >> 16) % 37));
      targets.push_back(i % 7 == 3 ? -1 : static_cast<std::int32_t>((seed >> 8) % 37));
      positions.push_back(position++);
      valid += targets.back() >= 0;
    }
    while (static_cast<std::int64_t>(cu_seqlens.size()) < n + 1) cu_seqlens.push_back(static_cast<std::int32_t>(n));
  }
  HostBatch batch() const { return {tokens.data(), targets.data(), positions.data(), cu_seqlens.data()}; }
};

struct Gradients {
  double loss = 0;
  std::vector<std::vector<float>> grads;
};

std::vector<float> values(const Tensor& t) {
  const auto* p = t.as<float>();
  return {p, p + t.numel()};
}

Gradients gradients(const EngineConfig& config, int threads, const Data& data) {
  ThreadPool pool(threads, false);
  Engine engine(cpu_target(threads), config, pool);
  engine.initialise_weights(5);
  engine.begin_step({.learning_rate = 1e-3, .targets = data.valid});
  engine.micro_step(data.batch());
  Gradients r;
  for (const Tensor& g : engine.grads().tensors) r.grads.push_back(values(g));
  r.loss = engine.end_step().loss_sum;
  return r;
}

class EachFamily : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Gpt, EachFamily, testing::ValuesIn(variants()), [](const auto& info) { return std::string(info.param.name); });

TEST_P(EachFamily, GradientsMatchFiniteDifferences) {
  const EngineConfig config{.model = GetParam().model, .micro_batch = kRows, .context_len = kLength};
  const Data data(kRows);
  ThreadPool pool(2, false);
  Engine engine(cpu_target(2), config, pool);
  engine.initialise_weights(5);
  // Larger weights than at the start of a training: every part of the model then matters to the loss.
  for (const Tensor& w : engine.weights().tensors)
    for (std::int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] *= w.rank() == 2 ? 8.0f : 1.0f;
  engine.begin_step({.targets = data.valid});
  engine.micro_step(data.batch());
  std::uint32_t seed = 9;
  for (std::size_t p = 0; p < engine.params().size(); ++p) {
    const Tensor w = engine.weights().tensors[p];
    const std::vector<float> g = values(engine.grads().tensors[p]);
    // Along a random direction, a difference in fp32 losses is accurate enough.
    std::vector<float> direction(g.size()), kept = values(w);
    double expected = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      seed = seed * 1664525u + 1013904223u;
      direction[i] = (seed >> 31) ? 1.0f : -1.0f;
      // Half of the directions follow the gradient, so that the expected change is not lost in rounding.
      if (i % 2 == 0) direction[i] = std::copysign(1.0f, g[i]);
      expected += static_cast<double>(g[i]) * direction[i];
    }
    const double step = 2e-3 / std::sqrt(static_cast<double>(g.size()));
    double losses[2];
    for (int side : {0, 1}) {
      for (std::size_t i = 0; i < g.size(); ++i) w.as<float>()[i] = kept[i] + static_cast<float>((side ? step : -step) * 3 * direction[i]);
      losses[side] = engine.evaluate(data.batch()) / static_cast<double>(data.valid);
    }
    std::memcpy(w.data, kept.data(), w.bytes());
    const double measured = (losses[1] - losses[0]) / (6 * step);
    EXPECT_NEAR(measured, expected, 0.02 * std::abs(expected) + 2e-3) << engine.params()[p].name;
  }
}

TEST_P(EachFamily, RecomputeLevelsAndThreadsGiveTheSameBits) {
  EngineConfig config{.model = GetParam().model, .micro_batch = kRows, .context_len = kLength};
  const Data data(kRows);
  const Gradients base = gradients(config, 1, data);
  for (Recompute level : {Recompute::kNone, Recompute::kAct, Recompute::kMlp, Recompute::kBlock})
    for (int threads : {1, 2, 3}) {
      config.recompute = level;
      const Gradients r = gradients(config, threads, data);
      EXPECT_EQ(r.loss, base.loss);
      for (std::size_t p = 0; p < r.grads.size(); ++p)
        EXPECT_EQ(0, std::memcmp(r.grads[p].data(), base.grads[p].data(), r.grads[p].size() * sizeof(float)))
            << "parameter " << p << ", level " << static_cast<int>(level) << ", threads " << threads;
    }
}

TEST_P(EachFamily, AccumulationEqualsOneBatch) {
  const Data data(4, 3);
  const Gradients whole = gradients({.model = GetParam().model, .micro_batch = 4, .context_len = kLength}, 2, data);
  const EngineConfig config{.model = GetParam().model, .micro_batch = 1, .context_len = kLength};
  ThreadPool pool(2, false);
  Engine engine(cpu_target(2), config, pool);
  engine.initialise_weights(5);
  engine.begin_step({.targets = data.valid});
  for (std::int64_t row = 0; row < 4; ++row) {
    std::vector<std::int32_t> cu = {0};
    for (std::int64_t i = 1; i < kLength; ++i)
      if (data.positions[static_cast<std::size_t>(row * kLength + i)] == 0) cu.push_back(static_cast<std::int32_t>(i));
    cu.resize(kLength + 1, kLength);
    const auto at = static_cast<std::size_t>(row * kLength);
    engine.micro_step({&data.tokens[at], &data.targets[at], &data.positions[at], cu.data()});
  }
  for (std::size_t p = 0; p < whole.grads.size(); ++p) {
    const std::vector<float> g = values(engine.grads().tensors[p]);
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      difference += std::pow(static_cast<double>(g[i]) - whole.grads[p][i], 2);
      norm += std::pow(static_cast<double>(whole.grads[p][i]), 2);
    }
    EXPECT_LE(std::sqrt(difference), 1e-6 * std::sqrt(norm)) << engine.params()[p].name;
  }
}

TEST_P(EachFamily, StandardAttentionGivesTheSameLoss) {
  EngineConfig config{.model = GetParam().model, .micro_batch = kRows, .context_len = kLength};
  const Data data(kRows);
  const Gradients flash = gradients(config, 2, data);
  config.attention = attention::Implementation::kStandard;
  const Gradients standard = gradients(config, 2, data);
  EXPECT_NEAR(flash.loss, standard.loss, 1e-5 * flash.loss);
}

TEST(Gpt, DocumentsDoNotSeeEachOther) {
  const EngineConfig config{.model = tiny(Family::kGpt2), .micro_batch = kRows, .context_len = kLength};
  Data data(kRows);
  ThreadPool pool(1, false);
  Engine engine(cpu_target(1), config, pool);
  engine.initialise_weights(5);
  std::vector<float> before(kRows * kLength), after(before.size());
  engine.evaluate(data.batch(), before.data());
  data.tokens[0] = (data.tokens[0] + 1) % 37;  // first document only
  engine.evaluate(data.batch(), after.data());
  const auto end = static_cast<std::size_t>(data.cu_seqlens[1]);
  EXPECT_NE(before[0], after[0]);
  for (std::size_t i = end; i < before.size(); ++i) EXPECT_EQ(before[i], after[i]) << "token " << i;
}

TEST(Gpt, NumberOfParametersOfThePresets) {
  EXPECT_EQ(count(parameters(complete(preset_named("gpt2-124m")))), 124439808);
  EXPECT_EQ(count(parameters(complete(preset_named("124m")))), 124439808);
  EXPECT_THROW(preset_named("gpt2-125m"), Error);
}

}  // namespace
}  // namespace flashgpt
