// Evaluation: which target counts in which window, and the sums against windows evaluated one at a time.
#include "train/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace flashgpt {
namespace {

constexpr std::int64_t kLength = 16;
constexpr std::int32_t kEnd = 28;

EngineConfig tiny(std::int64_t micro_batch) {
  return {.model = {.family = Family::kLlama, .layers = 2, .width = 32, .heads = 2, .vocab_size = 29, .context_len = kLength},
          .micro_batch = micro_batch,
          .context_len = kLength,
          .train = false};
}

struct Text {
  std::vector<std::int32_t> ids;
  TokenStream stream;
  explicit Text(const std::vector<int>& lengths) {
    std::mt19937 random(7);
    for (const int n : lengths) {
      for (int i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>(random() % 28));
      ids.push_back(kEnd);
    }
    std::vector<std::int32_t> bytes(29);
    for (std::size_t i = 0; i < 28; ++i) bytes[i] = static_cast<std::int32_t>(1 + i % 3);
    stream = TokenStream({{.data = ids.data(), .count = static_cast<std::int64_t>(ids.size()), .width = 4}}, bytes, kEnd);
  }
};

const std::vector<int> kLengths = {1, 0, 5, 40, 16, 17, 15, 100, 0, 3, 64};

// Losses of a window alone, at the start of a batch of one row.
std::vector<float> losses_of(Engine& engine, const Text& text, const EvalWindow& w) {
  std::vector<std::int32_t> tokens(kLength, kEnd), targets(kLength, kIgnoredTarget), positions(kLength, 0), bounds(kLength + 1, kLength);
  const std::int64_t n = w.end - w.begin;
  bounds[0] = 0;
  for (std::int64_t i = 0; i < kLength; ++i) {
    if (i >= n) bounds[static_cast<std::size_t>(i - n + 1)] = static_cast<std::int32_t>(i);
    if (i >= n) continue;
    tokens[static_cast<std::size_t>(i)] = text.ids[static_cast<std::size_t>(w.begin + i)];
    targets[static_cast<std::size_t>(i)] = text.ids[static_cast<std::size_t>(w.begin + i + 1)];
    positions[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  }
  std::vector<float> losses(kLength);
  engine.evaluate({tokens.data(), targets.data(), positions.data(), bounds.data()}, losses.data());
  return losses;
}

TEST(CutWindows, EachTargetCountsOnceWithTheContextPromised) {
  for (const EvalMode mode : {EvalMode::kBlocks, EvalMode::kSliding}) {
    for (const std::int64_t stride : {1, 3, 8, 16}) {
      for (std::int64_t begin : {0, 5, 16, 31}) {
        for (std::int64_t n = 0; n < 70; ++n) {
          std::int64_t next = begin;
          for (const EvalWindow& w : cut_windows(begin, begin + n + 1, kLength, mode, stride)) {
            EXPECT_EQ(w.from, next);
            EXPECT_GT(w.end, w.from);
            EXPECT_GE(w.begin, begin);
            EXPECT_LE(w.end - w.begin, kLength);
            const bool slides = mode == EvalMode::kSliding;
            EXPECT_TRUE(!slides || w.begin == begin || w.from - w.begin + 1 >= kLength - stride + 1);
            EXPECT_TRUE(slides || w.begin / kLength == (w.end - 1) / kLength);
            next = w.end;
          }
          EXPECT_EQ(next, begin + n);
        }
      }
    }
  }
}

TEST(Evaluate, EqualsWindowsTakenOneAtATime) {
  const Text text(kLengths);
  ThreadPool pool(2, false);
  Engine one(cpu_target(2), tiny(1), pool), batch(cpu_target(2), tiny(3), pool);
  one.initialise_weights(3);
  batch.initialise_weights(3);
  for (const EvalMode mode : {EvalMode::kBlocks, EvalMode::kSliding}) {
    for (const std::int64_t stride : {std::int64_t{1}, std::int64_t{5}, kLength}) {
      const EvalReport r = evaluate(batch, tiny(3), text.stream, {.mode = mode, .stride = stride});
      double loss = 0, deep = 0;
      std::int64_t targets = 0, bytes = 0, begin = 0, deep_targets = 0, windows = 0;
      for (const int n : kLengths) {
        for (const EvalWindow& w : cut_windows(begin, begin + n + 1, kLength, mode, stride)) {
          const std::vector<float> losses = losses_of(one, text, w);
          ++windows;
          for (std::int64_t i = w.from; i < w.end; ++i) {
            loss += losses[static_cast<std::size_t>(i - w.begin)];
            bytes += text.stream.text_bytes(text.ids[static_cast<std::size_t>(i + 1)]);
            ++targets;
            if (n <= 64) continue;
            deep += losses[static_cast<std::size_t>(i - w.begin)];
            ++deep_targets;
          }
        }
        begin += n + 1;
      }
      EXPECT_EQ(r.all.targets, targets);
      EXPECT_EQ(r.all.bytes, bytes);
      EXPECT_EQ(r.windows, windows);
      EXPECT_EQ(r.documents, 9);
      EXPECT_NEAR(r.all.loss_sum, loss, 1e-5 * loss);
      ASSERT_EQ(r.by_document.size(), 2u);  // 1 .. 64 and 65 .. 128
      EXPECT_EQ(r.by_document[1].targets, deep_targets);
      EXPECT_NEAR(r.by_document[1].loss_sum, deep, 1e-5 * deep);
    }
  }
}

TEST(Evaluate, BlocksGiveTheMeanOfATrainingsValidation) {
  const Text text(kLengths);
  ThreadPool pool(2, false);
  Engine engine(cpu_target(2), tiny(2), pool);
  engine.initialise_weights(3);
  const ValidationLoader loader(text.stream, kLength);
  StepRows rows(2, 2, kLength);
  double loss = 0;
  RowCounts counts;
  for (std::int64_t r = 0; r < loader.rows(); r += 2) {
    counts += rows.fill(loader, r);
    loss += engine.evaluate(host_batch(rows.micro(0)));
  }
  const EvalReport r = evaluate(engine, tiny(2), text.stream, {});
  EXPECT_EQ(r.all.targets, counts.targets);
  EXPECT_EQ(r.all.bytes, counts.text_bytes);
  EXPECT_NEAR(r.all.loss_sum, loss, 1e-6 * loss);
}

TEST(Evaluate, BucketsAddUpAndThreadsChangeNoBit) {
  const Text text({200, 3, 70});
  std::vector<double> sums;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads, false);
    EngineConfig config = tiny(2);
    config.context_len = config.model.context_len = 64;
    Engine engine(cpu_target(threads), config, pool);
    engine.initialise_weights(3);
    const EvalReport r = evaluate(engine, config, text.stream, {.mode = EvalMode::kSliding, .stride = 32});
    EXPECT_EQ(r.least_context, 33);
    EvalBucket context, document;
    for (const EvalBucket& b : r.by_context) context.targets += b.targets, context.loss_sum += b.loss_sum;
    for (const EvalBucket& b : r.by_document) document.targets += b.targets, document.loss_sum += b.loss_sum;
    EXPECT_EQ(context.targets, r.all.targets);
    EXPECT_EQ(document.targets, r.all.targets);
    EXPECT_NEAR(context.loss_sum, r.all.loss_sum, 1e-9 * r.all.loss_sum);
    ASSERT_EQ(r.by_context.size(), 3u);
    EXPECT_EQ(r.by_context[0].to, 16);
    EXPECT_EQ(r.by_context[0].targets, 16 + 3 + 16);
    EXPECT_EQ(r.by_context[2].from, 33);
    EXPECT_EQ(r.by_context[2].to, 64);
    sums.push_back(r.all.loss_sum);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(Evaluate, ASampleOfWindowsIsSpreadOverTheText) {
  const Text text({160, 160});
  ThreadPool pool(1, false);
  Engine engine(cpu_target(1), tiny(2), pool);
  engine.initialise_weights(3);
  const EvalReport r = evaluate(engine, tiny(2), text.stream, {.max_windows = 4});
  EXPECT_EQ(r.windows, 4);
  EXPECT_EQ(r.documents, 2);
  EXPECT_LE(r.all.targets, 4 * kLength);
  EXPECT_EQ(evaluate(engine, tiny(2), text.stream, {.max_windows = 1000}).all.targets, 320);
}

TEST(Evaluate, DocumentsWithoutTextGiveNothingAndAWrongStrideIsAnError) {
  const Text text({0, 0});
  ThreadPool pool(1, false);
  Engine engine(cpu_target(1), tiny(1), pool);
  engine.initialise_weights(3);
  const EvalReport r = evaluate(engine, tiny(1), text.stream, {});
  EXPECT_EQ(r.all.targets, 0);
  EXPECT_TRUE(std::isnan(r.all.loss()));
  EXPECT_THROW(evaluate(engine, tiny(1), text.stream, {.mode = EvalMode::kSliding, .stride = kLength + 1}), Error);
}

}  // namespace
}  // namespace flashgpt
