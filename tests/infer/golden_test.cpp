// Logits of models from elsewhere, through the KV cache in every way of cutting the tokens.
#include "model/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "infer/engine.h"

namespace flashgpt::testing {
namespace {

class GoldenLogits : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GoldenLogits, ::testing::ValuesIn(kGoldenModels),
                         [](const auto& info) { return std::string(info.param); });

// Each row gets `prompt` tokens at once, in chunks of `chunk`, the rest one by one; rows end where their lengths say.
void expect_golden(const Golden& g, std::int64_t prompt, std::int64_t chunk) {
  SCOPED_TRACE(cat("prompt of ", prompt, " in chunks of ", chunk));
  ThreadPool pool(2, false);
  InferenceEngine engine(cpu_target(2), {.model = g.model, .batch = g.rows, .capacity = g.length, .chunk = chunk}, pool);
  load_weights(engine.context(), engine.params(), engine.weights(), g.folder);
  std::vector<std::span<const std::int32_t>> fed(static_cast<std::size_t>(g.rows));
  for (std::int64_t at = 0; at < g.length;) {
    const std::int64_t count = at == 0 ? prompt : 1;
    for (std::int64_t r = 0; r < g.rows; ++r) {
      const std::int64_t here = std::clamp<std::int64_t>(g.lengths[static_cast<std::size_t>(r)] - at, 0, count);
      fed[static_cast<std::size_t>(r)] = {&g.ids[static_cast<std::size_t>(r * g.length + at)], static_cast<std::size_t>(here)};
    }
    engine.feed(fed);
    for (std::int64_t r = 0; r < g.rows; ++r) {
      const auto here = static_cast<std::int64_t>(fed[static_cast<std::size_t>(r)].size());
      if (here == 0) continue;
      const auto got = engine.logits(r);
      const float* want = &g.logits[static_cast<std::size_t>((r * g.length + at + here - 1) * g.model.vocab_size)];
      for (std::size_t v = 0; v < got.size(); ++v) ASSERT_NEAR(got[v], want[v], 5e-5) << "row " << r << ", token " << at + here - 1;
    }
    at += count;
  }
}

TEST_P(GoldenLogits, LikeTransformers) {
  const Golden g(GetParam());
  expect_golden(g, 1, 128);
  expect_golden(g, 13, 4);
  expect_golden(g, g.length, 128);
}

}  // namespace
}  // namespace flashgpt::testing
