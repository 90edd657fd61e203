// Decoding through the cache against running everything again; samplers and text streams.
#include "infer/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace flashgpt {
namespace {

ModelConfig tiny(Family family) {
  ModelConfig c{.family = family, .layers = 2, .width = 32, .heads = 4, .mlp_hidden = 48, .vocab_size = 41, .context_len = 64};
  if (family == Family::kLlama) c.kv_heads = 2;
  return c;
}

void randomise(InferenceEngine& engine) {
  initialise(engine.context(), engine.params(), engine.weights(), 11);
  for (const Tensor& w : engine.weights().tensors)
    for (std::int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] *= w.rank() == 2 ? 10.0f : 1.0f;
}

class EachFamily : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Generate, EachFamily, testing::Values(Family::kGpt2, Family::kLlama, Family::kMpt),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(EachFamily, GreedyThroughTheCacheEqualsFullRecomputation) {
  ThreadPool pool(2, false);
  const std::vector<std::vector<std::int32_t>> prompts = {{3}, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {1, 2, 3, 4}};
  InferenceEngine cached(cpu_target(2), {.model = tiny(GetParam()), .batch = 3, .capacity = 40, .chunk = 4}, pool);
  randomise(cached);
  std::vector<std::vector<std::int32_t>> rows = prompts;
  generate(cached, prompts, {.sampling = {.temperature = 0}, .max_new_tokens = 20}, [&](std::int64_t row, std::int32_t token) {
    rows[static_cast<std::size_t>(row)].push_back(token);
    return true;
  });
  InferenceEngine whole(cpu_target(2), {.model = tiny(GetParam()), .batch = 1, .capacity = 40, .chunk = 40}, pool);
  randomise(whole);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    ASSERT_EQ(rows[r].size(), prompts[r].size() + 20);
    for (std::size_t n = prompts[r].size(); n < rows[r].size(); ++n) {
      whole.reset();
      const std::span<const std::int32_t> prefix(rows[r].data(), n);
      whole.feed({&prefix, 1});
      const auto logits = whole.logits(0);
      EXPECT_EQ(rows[r][n], std::max_element(logits.begin(), logits.end()) - logits.begin()) << "row " << r << ", token " << n;
    }
  }
}

TEST(Generate, StopsAtEndOfTextLengthCapacityAndWhenTold) {
  ThreadPool pool(1, false);
  InferenceEngine engine(cpu_target(1), {.model = tiny(Family::kLlama), .batch = 1, .capacity = 8}, pool);
  randomise(engine);
  int count = 0;
  auto sink = [&](std::int64_t, std::int32_t) { return ++count < 100; };
  EXPECT_EQ(generate(engine, {{1, 2}}, {.max_new_tokens = 3}, sink)[0], StopReason::kLength);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(generate(engine, {{1, 2}}, {.max_new_tokens = 50}, sink)[0], StopReason::kCapacity);
  EXPECT_EQ(count, 3 + 7);  // two of the prompt, six fed back, the last one is not
  EXPECT_EQ(generate(engine, {{1}}, {.max_new_tokens = 50}, [](std::int64_t, std::int32_t) { return false; })[0], StopReason::kStopped);
  std::int32_t first = -1;
  generate(engine, {{1, 2}}, {.sampling = {.temperature = 0}, .max_new_tokens = 1}, [&](std::int64_t, std::int32_t t) {
    first = t;
    return true;
  });
  EXPECT_EQ(generate(engine, {{1, 2}}, {.sampling = {.temperature = 0}, .end_of_text = first}, sink)[0], StopReason::kEndOfText);
  EXPECT_EQ(generate(engine, {{1}}, {.max_new_tokens = 0}, sink)[0], StopReason::kLength);
  EXPECT_THROW(generate(engine, {{}}, {}, sink), Error);
  EXPECT_THROW(generate(engine, {{41}}, {}, sink), Error);
  EXPECT_THROW(generate(engine, {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, {}, sink), Error);
}

TEST(Sampler, FollowsTheProbabilities) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f), -INFINITY};
  std::vector<std::int32_t> order;
  std::map<std::int32_t, int> seen;
  const int n = 20000;
  for (int i = 0; i < n; ++i) seen[sample(logits, SamplingParams{.seed = 3}, 0, static_cast<std::uint64_t>(i), order)]++;
  EXPECT_NEAR(seen[0] / double(n), 1 / 8.0, 0.01);
  EXPECT_NEAR(seen[1] / double(n), 2 / 8.0, 0.01);
  EXPECT_NEAR(seen[2] / double(n), 5 / 8.0, 0.01);
  EXPECT_EQ(seen[3], 0);
}

TEST(Sampler, TopKTopPTemperatureAndErrors) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 0.0f};
  std::vector<std::int32_t> order;
  for (std::uint64_t i = 0; i < 500; ++i) {
    EXPECT_EQ(sample(logits, SamplingParams{.top_k = 1, .seed = i}, 0, 0, order), 1);
    EXPECT_EQ(sample(logits, SamplingParams{.top_p = 0.1, .seed = i}, 0, 0, order), 1);
    EXPECT_EQ(sample(logits, SamplingParams{.temperature = 1e-3, .seed = i}, 0, 0, order), 1);
    const auto two = sample(logits, SamplingParams{.top_k = 2, .seed = i}, 0, 0, order);
    EXPECT_TRUE(two == 1 || two == 2);
    const auto p = sample(logits, SamplingParams{.top_p = 0.8, .seed = i}, 0, 0, order);  // 0.64 + 0.24
    EXPECT_TRUE(p == 1 || p == 2);
  }
  EXPECT_EQ(sample(std::vector<float>{2.0f, 2.0f}, SamplingParams{.temperature = 0}, 0, 0, order), 0);
  EXPECT_THROW(sample(std::vector<float>{NAN, NAN}, SamplingParams{}, 0, 0, order), Error);
  for (float bad : {NAN, INFINITY}) EXPECT_THROW(sample(std::vector<float>{1.0f, bad, 2.0f}, SamplingParams{}, 0, 0, order), Error);
  EXPECT_THROW(sample(std::vector<float>{-INFINITY, -INFINITY}, SamplingParams{}, 0, 0, order), Error);
  EXPECT_EQ(sample(std::vector<float>{-INFINITY, 1.0f}, SamplingParams{}, 0, 0, order), 1);
  EXPECT_THROW(check(SamplingParams{.temperature = -1}), Error);
  EXPECT_THROW(check(SamplingParams{.top_p = 0}), Error);
}

TEST(Utf8Stream, WholeCharactersOnly) {
  Utf8Stream s;
  EXPECT_EQ(s.push("a\xE4\xBD"), "a");
  EXPECT_EQ(s.push("\xA0"
                   "b"),
            "\xE4\xBD\xA0"
            "b");
  EXPECT_EQ(s.push("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(s.push("\xFFx"), "\xEF\xBF\xBDx");
  EXPECT_EQ(s.push("\xE4y"), "\xEF\xBF\xBDy");
  EXPECT_EQ(s.push("\xED\xA0"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(s.push("\xC2"), "");
  EXPECT_EQ(s.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(s.finish(), "");
}

}  // namespace
}  // namespace flashgpt
