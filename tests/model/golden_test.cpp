// Models from elsewhere: losses through the forward pass of training, and the same model written here and read again.
#include "model/golden.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/json.h"
#include "io/test_folder.h"
#include "model/hf_config.h"
#include "train/engine.h"

namespace flashgpt::testing {
namespace {

class GoldenModel : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GoldenModel, ::testing::ValuesIn(kGoldenModels),
                         [](const auto& info) { return std::string(info.param); });

struct Loaded {
  ThreadPool pool{2, false};
  Engine engine;
  Loaded(const Golden& g, const std::filesystem::path& folder, attention::Implementation attention = attention::Implementation::kAuto)
      : engine(cpu_target(2),
               {.model = load_model_config(folder), .micro_batch = g.rows, .context_len = g.length, .attention = attention, .train = false},
               pool) {
    load_weights(engine.context(), engine.params(), engine.weights(), folder);
  }
  // [rows * length]; a row's tokens are one document, what is behind them another.
  std::vector<float> losses(const Golden& g) {
    std::vector<std::int32_t> targets(g.ids.size(), -1), positions(g.ids.size()), bounds;
    for (std::int64_t r = 0; r < g.rows; ++r) {
      const std::int32_t count = g.lengths[static_cast<std::size_t>(r)];
      bounds.push_back(static_cast<std::int32_t>(r * g.length));
      if (count < g.length) bounds.push_back(bounds.back() + count);
      for (std::int32_t i = 0; i < g.length; ++i) {
        const auto at = static_cast<std::size_t>(r * g.length + i);
        positions[at] = i < count ? i : i - count;
        if (i + 1 < count) targets[at] = g.ids[at + 1];
      }
    }
    bounds.resize(g.ids.size() + 1, static_cast<std::int32_t>(g.ids.size()));
    std::vector<float> list(g.ids.size());
    engine.evaluate({g.ids.data(), targets.data(), positions.data(), bounds.data()}, list.data());
    return list;
  }
};

TEST_P(GoldenModel, LossesLikeTransformers) {
  const Golden g(GetParam());
  for (auto attention : {attention::Implementation::kFlash, attention::Implementation::kStandard}) {
    const std::vector<float> got = Loaded(g, g.folder, attention).losses(g);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], g.losses[i], 5e-5) << "token " << i;
  }
}

TEST_P(GoldenModel, WrittenAndReadAgain) {
  const Golden g(GetParam());
  TestFolder folder;
  Loaded first(g, g.folder);
  const Engine& e = first.engine;
  const std::vector<float> losses = first.losses(g);
  for (const std::uint64_t shard : {std::uint64_t{1} << 30, std::uint64_t{8000}}) {
    save_model(first.engine.context(), g.model, e.params(), e.weights(), {.max_shard_bytes = shard}, folder.path());
    EXPECT_EQ(exists(folder / "model.safetensors"), shard > 8000);
    EXPECT_EQ(load_model_config(folder.path()), g.model);
    EXPECT_EQ(Loaded(g, folder.path()).losses(g), losses);
  }
}

TEST_P(GoldenModel, ItsTypeIsKept) {
  const Golden g(GetParam());
  const std::string text = hf_config_json(g.model, -1), theirs = read_file(g.folder / "config.json");
  EXPECT_EQ(parse_json(text, "ours")["model_type"], parse_json(theirs, "theirs")["model_type"]);
  EXPECT_EQ(parse_json(text, "ours")["architectures"], parse_json(theirs, "theirs")["architectures"]);
}

}  // namespace
}  // namespace flashgpt::testing
