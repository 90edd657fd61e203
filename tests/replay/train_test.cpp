// Faults of other trainers that show in a whole step of the model, replayed with the smallest trigger known. Numbers are those of our list
// of faults.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "replay/rows.h"
#include "train/config.h"

namespace flashgpt::testing {
namespace {

constexpr std::int64_t kVocab = 53;

EngineConfig tiny(std::int64_t micro_batch, std::int64_t length, Family family = Family::kGpt2,
                  OptimizerKind optimizer = OptimizerKind::kAdamW) {
  ModelConfig model{.family = family, .layers = 2, .width = 32, .heads = 4, .mlp_hidden = 48, .vocab_size = kVocab, .context_len = 160};
  if (family == Family::kLlama) model.kv_heads = 2;
  return {.model = model, .optimizer = {.kind = optimizer, .learning_rate = 1e-3}, .micro_batch = micro_batch, .context_len = length};
}

// An engine with weights large enough that attention and position matter.
struct Trainee {
  ThreadPool pool{2, false};
  Engine engine;
  explicit Trainee(const EngineConfig& config) : engine(cpu_target(2), config, pool) {
    engine.initialise_weights(1);
    for (const Tensor& w : engine.weights().tensors)
      if (w.rank() == 2)
        for (std::int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] *= 8.0f;
  }
  StepResult step(std::vector<HandRows> micro_batches, std::int64_t update = 1, double max_norm = 0) {
    std::int64_t targets = 0;
    for (const HandRows& m : micro_batches) targets += m.counted();
    engine.begin_step({.learning_rate = 1e-3, .targets = targets, .update = update, .max_norm = max_norm});
    for (HandRows& m : micro_batches) engine.micro_step(m.batch());
    return engine.end_step();
  }
  std::vector<float> weights() const { return values(engine.weights().tensors); }
  std::vector<float> grads() const { return values(engine.grads().tensors); }
  std::vector<float> state() const { return values(engine.optimizer_state()); }
};

bool all_finite(const std::vector<float>& v) {
  return std::all_of(v.begin(), v.end(), [](float x) { return std::isfinite(x); });
}

HandRows join(const std::vector<HandRows>& rows) {
  HandRows all;
  for (const HandRows& r : rows) {
    const auto base = static_cast<std::int32_t>(all.tokens.size());
    all.tokens.insert(all.tokens.end(), r.tokens.begin(), r.tokens.end());
    all.targets.insert(all.targets.end(), r.targets.begin(), r.targets.end());
    all.positions.insert(all.positions.end(), r.positions.begin(), r.positions.end());
    for (std::size_t i = 1; i < r.cu_seqlens.size(); ++i) all.cu_seqlens.push_back(base + r.cu_seqlens[i]);
  }
  return all;
}

// A row of one document in which the first `counted` targets count.
HandRows row_with(std::int64_t length, std::int64_t counted, std::uint32_t seed) {
  HandRows r;
  r.document(some_ids(static_cast<std::size_t>(length), kVocab, seed));
  std::fill(r.targets.begin() + counted, r.targets.end(), -1);
  return r;
}

// 1: each micro-batch was averaged by itself, so 10 targets weighed as much as 90. Two micro-batches equal one batch.
TEST(ReplayTrain, MicroBatchesOf10And90TargetsEqualOneBatch) {
  const HandRows ten = row_with(100, 10, 1), ninety = row_with(100, 90, 2);
  Trainee whole(tiny(2, 100, Family::kLlama)), parts(tiny(1, 100, Family::kLlama));  // no biases: a key's has a gradient of 0 + rounding
  const StepResult a = whole.step({join({ten, ninety})}), b = parts.step({ten, ninety});
  EXPECT_NEAR(b.loss_sum, a.loss_sum, 1e-6 * a.loss_sum);
  EXPECT_NEAR(b.grad_norm, a.grad_norm, 1e-5 * a.grad_norm);
  EXPECT_LT(difference(parts.grads(), whole.grads()), 1e-5);
  EXPECT_LT(difference(parts.weights(), whole.weights()), 1e-5);
}

// 1, as it was seen: gradient norms of 1.04, 0.52, 0.26 with 1, 2 and 4 micro-batches.
TEST(ReplayTrain, TheNormDoesNotDependOnTheNumberOfMicroBatches) {
  std::vector<HandRows> rows;
  for (std::uint32_t r = 0; r < 4; ++r) rows.push_back(row_with(24, 23, r));
  const double one = Trainee(tiny(4, 24)).step({join(rows)}).grad_norm;
  EXPECT_NEAR(Trainee(tiny(2, 24)).step({join({rows[0], rows[1]}), join({rows[2], rows[3]})}).grad_norm, one, 1e-5 * one);
  EXPECT_NEAR(Trainee(tiny(1, 24)).step(rows).grad_norm, one, 1e-5 * one);
}

// 7: 64 equal micro-batches: a low-precision accumulator loses small gradients, another was divided by 65536 and never cleared.
TEST(ReplayTrain, SixtyFourEqualMicroBatchesEqualOne) {
  const HandRows row = row_with(24, 23, 5);
  Trainee once(tiny(1, 24, Family::kLlama)), often(tiny(1, 24, Family::kLlama));
  for (std::int64_t update = 1; update <= 2; ++update) {  // the second step sees what the first left in the buffers
    const StepResult a = once.step({row}, update), b = often.step(std::vector<HandRows>(64, row), update);
    EXPECT_NEAR(b.loss_sum, 64 * a.loss_sum, 1e-5 * b.loss_sum);
    EXPECT_LT(difference(often.grads(), once.grads()), 1e-4) << update;
  }
  EXPECT_LT(difference(often.weights(), once.weights()), 1e-4);
}

// 3: a batch in which every target is ignored gave 0 / 0. The whole step stays finite and the next one works.
TEST(ReplayTrain, AStepWithoutTargetsIsFinite) {
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdafactor}) {
    Trainee t(tiny(2, 12, Family::kLlama, kind));
    const HandRows ignored = join({row_with(12, 0, 1), row_with(12, 0, 2)}), good = join({row_with(12, 11, 1), row_with(12, 11, 2)});
    std::int64_t update = 0;
    for (const HandRows& rows : {ignored, good, ignored, good}) {
      const StepResult r = t.step({rows}, ++update, 1.0);
      EXPECT_FALSE(r.skipped);
      EXPECT_TRUE(std::isfinite(r.loss_sum) && std::isfinite(r.grad_norm));
      EXPECT_TRUE(all_finite(t.weights()) && all_finite(t.state())) << name_of(kind) << " " << update;
      if (rows.counted() > 0) continue;
      EXPECT_EQ(r.loss_sum, 0);
      EXPECT_EQ(r.grad_norm, 0);
      for (float g : t.grads()) ASSERT_EQ(g, 0);
    }
    // One of two micro-batches without targets adds nothing.
    Trainee both(tiny(2, 12)), one(tiny(2, 12));
    both.step({ignored, good});
    one.step({good});
    EXPECT_EQ(both.grads(), one.grads());
  }
}

// 6, 10: one NaN or inf gradient, in any parameter and with either optimizer: this step changes no bit, the next one is as if it had not
// been.
TEST(ReplayTrain, ABadGradientCostsExactlyOneStep) {
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdafactor}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      const HandRows rows = join({row_with(12, 11, 1), row_with(12, 11, 2)});
      Trainee hit(tiny(2, 12, Family::kGpt2, kind)), spared(tiny(2, 12, Family::kGpt2, kind));
      hit.step({rows}, 1, 1.0);
      spared.step({rows}, 1, 1.0);
      const std::vector<float> weights = hit.weights(), state = hit.state();
      for (const Tensor& g : hit.engine.grads().tensors) {
        hit.engine.begin_step({.learning_rate = 1e-3, .targets = rows.counted(), .update = 2, .max_norm = 1.0});
        HandRows copy = rows;
        hit.engine.micro_step(copy.batch());
        g.as<float>()[g.numel() - 1] = bad;
        ASSERT_TRUE(hit.engine.end_step().skipped);
        ASSERT_EQ(hit.weights(), weights);
        ASSERT_EQ(hit.state(), state);
      }
      EXPECT_FALSE(hit.step({rows}, 2, 1.0).skipped);
      spared.step({rows}, 2, 1.0);
      EXPECT_EQ(hit.weights(), spared.weights());
      EXPECT_EQ(hit.state(), spared.state());
    }
  }
}

// 9, 10: a loss that is not finite (here a row of the position table) skips as well, and leaves nothing behind in buffers for the next
// step.
TEST(ReplayTrain, ABadLossCostsExactlyOneStep) {
  const HandRows rows = join({row_with(12, 11, 1), row_with(12, 11, 2)}), longer = join({row_with(12, 11, 3), row_with(12, 11, 4)});
  Trainee hit(tiny(2, 12)), spared(tiny(2, 12));
  hit.step({rows});
  spared.step({rows});
  float& position = hit.engine.weights().tensors[1].as<float>()[11 * 32];
  const float kept = position;
  position = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(hit.step({longer}, 2, 1.0).skipped);
  position = kept;
  EXPECT_FALSE(hit.step({rows}, 2, 1.0).skipped);
  spared.step({rows}, 2, 1.0);
  EXPECT_EQ(hit.weights(), spared.weights());
}

// 11: clipping compared and divided by the square of the norm. The first moment of step 1 is (1 - beta1) g, so it shows the factor.
TEST(ReplayTrain, ClippingScalesByTheNorm) {
  const HandRows row = row_with(24, 23, 5);
  Trainee plain(tiny(1, 24)), clipped(tiny(1, 24)), loose(tiny(1, 24));
  const double norm = plain.step({row}).grad_norm;
  EXPECT_NEAR(clipped.step({row}, 1, norm / 10).grad_norm, norm, 1e-6 * norm);  // told as it was before clipping
  loose.step({row}, 1, norm * 1.01);
  auto moment = [](const Trainee& t) { return values({t.engine.optimizer_state()[0]}); };
  std::vector<float> tenth = moment(plain);
  for (float& m : tenth) m *= 0.1f;
  EXPECT_LT(difference(moment(clipped), tenth), 1e-5);
  EXPECT_EQ(moment(loose), moment(plain));
}

// 12: a cosine divided by all steps instead of those after warm-up ended at 0.122 and 0.55 instead of 0.1, and warm-up began with a rate
// of 0. 53: fewer steps than were done must not trip the schedule.
TEST(ReplayTrain, ScheduleStartsAboveZeroAndEndsWhereItShould) {
  TrainConfig c;
  c.model = preset_named("gpt-10m");
  c.steps = 1000;
  c.optimizer.learning_rate = 1.0;
  for (ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kWsd}) {
    c.schedule = kind;
    for (std::int64_t warmup : {0, 1, 100, 500, 999, 1000}) {
      c.warmup_steps = warmup;
      EXPECT_GT(step_rate(c, 1), 0) << name_of(kind) << " " << warmup;
      EXPECT_NEAR(step_rate(c, std::max<std::int64_t>(warmup, 1)), 1.0, warmup == 1000 ? 1.0 : 1e-9);
      EXPECT_NEAR(step_rate(c, 1000), 0.1, 1e-9) << name_of(kind) << " " << warmup;
      EXPECT_NEAR(step_rate(c, 5000), 0.1, 1e-9);
    }
  }
}

// 14: a rate given beside the relative step is an error that names both.
TEST(ReplayTrain, AdafactorWithTwoRatesIsAnError) {
  TrainConfig c;
  c.model = preset_named("gpt-10m");
  c.optimizer = {.kind = OptimizerKind::kAdafactor, .learning_rate = 6e-5, .relative_step = true};
  try {
    resolve(c, cpu_target(1), std::int64_t{16} << 30);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("relative_step"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("learning_rate"), std::string::npos);
  }
}

// 14: the decay of step 1 is 0, so the second moment is that of the first gradient alone, whatever was there.
TEST(ReplayTrain, AdafactorsFirstStepForgetsEverything) {
  Trainee t(tiny(1, 24, Family::kGpt2, OptimizerKind::kAdafactor));
  for (const NamedTensor& s : t.engine.optimizer_state())
    for (std::int64_t i = 0; i < s.tensor.numel(); ++i) s.tensor.as<float>()[i] = 1e6f;
  t.step({row_with(24, 23, 5)});
  std::size_t vectors = 0;
  for (const NamedTensor& s : t.engine.optimizer_state()) {
    ASSERT_TRUE(all_finite(values({s})));
    if (s.name != "final_norm.w.col") continue;
    ++vectors;
    const Tensor& g = t.engine.grads().tensors[2];
    ASSERT_EQ(t.engine.params()[2].name, "final_norm.w");
    for (std::int64_t i = 0; i < g.numel(); ++i) {
      const double square = double{g.as<float>()[i]} * g.as<float>()[i];
      EXPECT_NEAR(s.tensor.as<float>()[i], square, 1e-5 * square + 1e-29);
    }
  }
  EXPECT_EQ(vectors, 1u);
}

// 14: the rate scaled by one parameter's size was written back, so each parameter's rate hung on the one before.
TEST(ReplayTrain, AdafactorsParametersAreIndependent) {
  EngineConfig config = tiny(1, 24, Family::kGpt2, OptimizerKind::kAdafactor);
  config.optimizer.learning_rate.reset();
  Trainee small(config), large(config);
  const std::size_t changed = 4;
  for (Trainee* t : {&small, &large}) {
    t->engine.begin_step({.learning_rate = 1e-2, .targets = 23, .update = 1});
    HandRows row = row_with(24, 23, 5);
    t->engine.micro_step(row.batch());
    if (t == &large) {
      const Tensor& w = t->engine.weights().tensors[changed];
      for (std::int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] *= 1000.0f;
    }
    EXPECT_FALSE(t->engine.end_step().skipped);
  }
  for (std::size_t i = 0; i < small.engine.params().size(); ++i) {
    const Tensor &a = small.engine.weights().tensors[i], &b = large.engine.weights().tensors[i];
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()) == 0, i != changed) << small.engine.params()[i].name;
  }
}

// 16: tokens behind the last document kept what memory held. 130 tokens, documents end at 128: gradients as for 128 tokens alone.
TEST(ReplayTrain, PaddingBehindTheLastDocumentAddsNothing) {
  for (Family family : {Family::kGpt2, Family::kLlama, Family::kMpt}) {
    Trainee padded(tiny(1, 130, family)), exact(tiny(1, 128, family));
    HandRows documents;
    documents.document(some_ids(70, kVocab, 1));
    documents.document(some_ids(58, kVocab, 2));
    HandRows more = documents;
    more.pad_to(130, 7);
    const std::vector<float> before = padded.weights();
    padded.step({row_with(130, 129, 9)});  // fills every buffer with other numbers
    padded.engine.initialise_weights(1);
    std::size_t at = 0;
    for (const Tensor& w : padded.engine.weights().tensors)
      for (std::int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] = before[at++];
    const StepResult a = padded.step({more}), b = exact.step({documents});
    EXPECT_NEAR(a.loss_sum, b.loss_sum, 1e-6 * b.loss_sum);
    EXPECT_TRUE(all_finite(padded.grads()));
    EXPECT_LT(difference(padded.grads(), exact.grads()), 1e-5) << name_of(family);
  }
}

// 27: packing without a mask trains on other documents' text. Documents of 3 and 5 tokens: the packed row has the losses of both alone;
// without bounds, or with positions that start anew alone, it has others.
TEST(ReplayTrain, APackedRowHasTheLossesOfItsDocuments) {
  for (Family family : {Family::kGpt2, Family::kLlama, Family::kMpt}) {
    Trainee t(tiny(1, 8, family));
    HandRows packed, three, five;
    packed.document({1, 2, 3});
    packed.document({4, 5, 6, 7, 8});
    three.document({1, 2, 3});
    three.pad_to(8);
    five.document({4, 5, 6, 7, 8});
    five.pad_to(8);
    const double together = t.engine.evaluate(packed.batch());
    const double apart = t.engine.evaluate(three.batch()) + t.engine.evaluate(five.batch());
    EXPECT_NEAR(together, apart, 1e-6 * apart) << name_of(family);
    HandRows positions_only = packed;
    positions_only.cu_seqlens = {0, 8};
    EXPECT_GT(std::abs(t.engine.evaluate(positions_only.batch()) - apart), 1e-3 * apart) << name_of(family);
    HandRows naive = positions_only;
    for (std::int32_t i = 0; i < 8; ++i) naive.positions[static_cast<std::size_t>(i)] = i;
    EXPECT_GT(std::abs(t.engine.evaluate(naive.batch()) - apart), 1e-3 * apart) << name_of(family);

    t.step({packed});
    const std::vector<float> grads = t.grads();
    Trainee other(tiny(1, 8, family));
    other.step({three, five});
    EXPECT_LT(difference(grads, other.grads()), 1e-5) << name_of(family);
  }
}

// 36: sizes at the edge: a row of one token, a batch of one row, one head, one layer.
TEST(ReplayTrain, SizesOfOne) {
  EngineConfig config = tiny(1, 1);
  config.model = {.layers = 1, .width = 1, .heads = 1, .mlp_hidden = 1, .vocab_size = 1, .context_len = 1};
  Trainee t(config);
  HandRows row;
  row.document({0, 0});
  row.tokens.resize(1), row.targets.resize(1), row.positions.resize(1), row.cu_seqlens = {0, 1};
  const StepResult r = t.step({row});
  EXPECT_FALSE(r.skipped);
  EXPECT_NEAR(r.loss_sum, 0, 1e-6);  // a vocabulary of one holds no surprise
  EXPECT_TRUE(all_finite(t.weights()));
}

}  // namespace
}  // namespace flashgpt::testing
