// A run as a whole: resume, signals, damaged checkpoints, full disks, skipped steps.
#include "train/run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "data/prepare.h"
#include "io/file.h"
#include "train/signals.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

class Run : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("flashgpt_run_test_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "text");
    for (int d = 0; d < 12; ++d) {
      std::ofstream out(root_ / "text" / (std::to_string(d) + ".txt"));
      for (int i = 0; i < 40; ++i) out << "line " << i * d << " of document " << d << "\n";
    }
    prepare({.inputs = {(root_ / "text").string()}, .out = (root_ / "data").string(), .val_fraction = 0.1});
    data_.emplace(Dataset::open((root_ / "data").string()));
    catch_stop_signals();
  }
  void TearDown() override { fs::remove_all(root_); }

  TrainConfig config(std::int64_t steps) {
    TrainConfig c;
    c.model = {.family = Family::kLlama,
               .layers = 2,
               .width = 32,
               .heads = 2,
               .vocab_size = data_->info().tokenizer.vocab_size,
               .context_len = 32};
    c.batch_size = 4;
    c.micro_batch = 2;
    c.steps = steps;
    c.eval_every = 3;
    c.save_every = 2;
    c.optimizer.learning_rate = 3e-3;
    return resolve(c, cpu_target(2), std::int64_t{1} << 30);
  }

  // stop_at: a SIGTERM arrives while that step is reported.
  RunResult go(const TrainConfig& c, const char* name, Resume resume = Resume::kNo, std::int64_t stop_at = -1) {
    ThreadPool pool(2, false);
    catch_stop_signals();
    notes_.clear();
    const RunEvents events{.step =
                               [&](const StepEvent& e) {
                                 if (e.step == stop_at) ::raise(SIGTERM);
                               },
                           .validation = [](const ValidationEvent&) {},
                           .note = [&](const std::string& text) { notes_.push_back(text); }};
    return train({.config = c, .config_text = "seed: 1\n", .run = root_ / name, .resume = resume}, cpu_target(2), pool, *data_, events);
  }
  std::string weights(const char* name) { return read_file(root_ / name / "final" / "model.safetensors"); }

  fs::path root_;
  std::optional<Dataset> data_;
  std::vector<std::string> notes_;
};

TEST_F(Run, AStoppedAndResumedRunEqualsAnUninterruptedOne) {
  const RunResult whole = go(config(9), "whole");
  EXPECT_TRUE(whole.finished);
  EXPECT_GT(whole.validation.targets, 0);
  const RunResult stopped = go(config(9), "parts", Resume::kNo, 3);
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(stopped.state.step, 3);
  EXPECT_FALSE(go(config(9), "parts", Resume::kMust, 6).finished);
  const RunResult end = go(config(9), "parts", Resume::kIfThere);
  EXPECT_TRUE(end.finished);
  EXPECT_EQ(weights("whole"), weights("parts"));
  EXPECT_EQ(end.validation.loss, whole.validation.loss);
  EXPECT_EQ(end.state.tokens, whole.state.tokens);
}

// 44, 52: other trainers forgot which of several shards a resume is in, or shuffled anew.
TEST_F(Run, AResumeAcrossShardsAndEpochs) {
  fs::remove_all(root_ / "data");
  prepare({.inputs = {(root_ / "text").string()}, .out = (root_ / "data").string(), .val_fraction = 0.1, .shard_tokens = 900});
  data_.emplace(Dataset::open((root_ / "data").string()));
  ASSERT_GE(data_->info().train.shards.size(), 3u);
  auto longer = [&] {
    TrainConfig c = config(9);
    c.batch_size = 64;
    return resolve(c, cpu_target(2), std::int64_t{1} << 30);
  };
  ASSERT_GT(longer().steps * longer().batch_size * longer().context_len, 2 * data_->info().train.tokens);
  const RunResult whole = go(longer(), "whole");
  for (std::int64_t stop : {2, 5, 7}) EXPECT_FALSE(go(longer(), "parts", Resume::kIfThere, stop).finished);
  const RunResult end = go(longer(), "parts", Resume::kMust);
  EXPECT_EQ(weights("whole"), weights("parts"));
  EXPECT_EQ(end.state.tokens, whole.state.tokens);
}

// Documents without text have no targets: a step of nothing else is no update, and no loss that is not a number.
TEST_F(Run, AStepWithoutTargetsIsNoUpdate) {
  TrainConfig c = config(60);
  c.batch_size = c.micro_batch = 1;
  c.context_len = 2;
  c.model.context_len = 2;
  c.save_every = c.eval_every = 0;
  fs::remove_all(root_ / "text");
  fs::create_directories(root_ / "text");
  for (int d = 0; d < 40; ++d) std::ofstream(root_ / "text" / (std::to_string(d) + ".txt")) << static_cast<char>('!' + d);
  prepare({.inputs = {(root_ / "text").string()}, .out = (root_ / "data").string(), .val_fraction = 0.1});
  data_.emplace(Dataset::open((root_ / "data").string()));
  const RunResult r = go(c, "run");
  EXPECT_EQ(r.state.step, 60);
  EXPECT_EQ(r.state.skipped, 0);
  std::int64_t without = 0;
  const std::string log = read_file(root_ / "run" / "train.jsonl");
  for (std::size_t at = 0; (at = log.find("\"loss\":null,", at)) != std::string::npos; ++at) ++without;
  EXPECT_EQ(r.state.updates, 60 - without);
}

TEST_F(Run, ADamagedCheckpointIsPassedOverAndSaid) {
  go(config(9), "whole");
  go(config(9), "parts", Resume::kNo, 6);
  const fs::path checkpoints = root_ / "parts" / "checkpoints";
  EXPECT_EQ(read_file(checkpoints / "latest"), "step_00000006\n");
  const fs::path file = checkpoints / "step_00000006" / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  fs::create_directories(checkpoints / "step_00000099");      // never finished
  fs::create_directories(checkpoints / "step_00000100.tmp");  // killed while it was written
  EXPECT_TRUE(go(config(9), "parts", Resume::kMust).finished);
  ASSERT_GE(notes_.size(), 3u);
  EXPECT_NE(notes_[0].find("step_00000099"), std::string::npos);
  EXPECT_NE(notes_[1].find("step_00000006"), std::string::npos) << notes_[1];
  EXPECT_NE(notes_[1].find("model.safetensors"), std::string::npos) << notes_[1];
  EXPECT_NE(notes_[2].find("step 4"), std::string::npos) << notes_[2];
  EXPECT_EQ(weights("whole"), weights("parts"));
}

TEST_F(Run, TheLogHasEachStepOnceAndTheDataChecksum) {
  go(config(6), "run", Resume::kNo, 5);
  {
    std::ofstream log(root_ / "run" / "train.jsonl", std::ios::app);           // what a kill may leave: a step to come, a torn line
    log << "{\"step\":6,\"loss\":1}\n5\n[1]\n{\"step\":\"x\"}\n{\"step\":6,";  // and what others wrote there
  }
  go(config(6), "run", Resume::kMust);
  const std::string log = read_file(root_ / "run" / "train.jsonl");
  auto times = [&](const std::string& what) {
    int n = 0;
    for (std::size_t at = 0; (at = log.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(times("\"skipped\":0,\"step\":6,"), 1) << log;
  EXPECT_EQ(times("\"loss\":1}"), 0) << log;
  EXPECT_EQ(times("data_checksum"), 2);
}

TEST_F(Run, KeepsTheLastCheckpointsOnly) {
  TrainConfig c = config(9);
  c.keep_last = 1;
  go(c, "run");
  int found = 0;
  for (const auto& entry : fs::directory_iterator(root_ / "run" / "checkpoints")) found += entry.is_directory();
  EXPECT_EQ(found, 1);
  EXPECT_TRUE(fs::exists(root_ / "run" / "checkpoints" / "step_00000009" / "config.json"));
  EXPECT_TRUE(fs::exists(root_ / "run" / "final" / "tokenizer.json"));
}

TEST_F(Run, WrongUsesAreErrors) {
  go(config(3), "run");
  EXPECT_THROW(go(config(3), "run"), Error);                  // holds a run already
  EXPECT_THROW(go(config(3), "none", Resume::kMust), Error);  // nothing to resume
  TrainConfig other = config(5);
  other.seed = 2;
  EXPECT_THROW(go(other, "run", Resume::kMust), Error);
  other = config(5);
  other.model.width = 64;
  other.model.head_dim = 0;
  other.model.mlp_hidden = 0;
  EXPECT_THROW(go(resolve(other, cpu_target(2), std::int64_t{1} << 30), "run", Resume::kMust), Error);
  prepare({.inputs = {(root_ / "text" / "1.txt").string()}, .out = (root_ / "data").string(), .val_fraction = 0.1});
  data_.emplace(Dataset::open((root_ / "data").string()));
  EXPECT_THROW(go(config(5), "run", Resume::kMust), Error);  // other data
}

TEST_F(Run, AnEndlessNonFiniteLossStopsAndTheLastGoodCheckpointStays) {
  TrainConfig c = config(50);
  c.optimizer.learning_rate = 1e30;  // the first update makes every logit overflow
  c.max_skips = 3;
  c.grad_clip = 0;
  c.warmup_steps = 0;
  c.save_every = 1;
  try {
    go(c, "run");
    FAIL() << "went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kFailure);
    EXPECT_NE(std::string(e.what()).find("3 steps in a row"), std::string::npos) << e.what();
  }
}

TEST(Config, TheRunThatDoesNotFitSaysSoBeforeItStarts) {
  TrainConfig c;
  c.model = preset_named("1.3b");
  try {
    resolve(c, cpu_target(2), std::int64_t{1} << 30);
    FAIL() << "1.3B in 1 GiB";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(e.what()).find("adafactor"), std::string::npos) << e.what();
  }
}

TEST(Config, AutomaticChoicesFitTheMemory) {
  TrainConfig c;
  c.model = preset_named("gpt-10m");
  c.batch_size = 12;
  const TrainConfig roomy = resolve(c, cpu_target(2), std::int64_t{16} << 30);
  EXPECT_EQ(roomy.micro_batch, 12);
  EXPECT_EQ(*roomy.recompute, Recompute::kNone);
  const std::int64_t tight = static_cast<std::int64_t>(1.3 * Engine::plan(cpu_target(2),
                                                                          [&] {
                                                                            EngineConfig e = engine_config(roomy);
                                                                            e.micro_batch = 2;
                                                                            return e;
                                                                          }())
                                                                 .total_bytes());
  const TrainConfig small = resolve(c, cpu_target(2), tight);
  EXPECT_LT(small.micro_batch, 12);
  EXPECT_EQ(12 % small.micro_batch, 0);
  c.micro_batch = 5;
  EXPECT_THROW(resolve(c, cpu_target(2), std::int64_t{16} << 30), Error);
  c.micro_batch = 0;
  c.context_len = 8192;
  EXPECT_EQ(resolve(c, cpu_target(2), std::int64_t{16} << 30).model.context_len, 8192);
  c.model_context_given = true;
  c.model.family = Family::kGpt2;
  EXPECT_THROW(resolve(c, cpu_target(2), std::int64_t{16} << 30), Error);  // no positions for 8192
}

TEST(Config, AHugeBatchIsAnErrorOrIsCut) {
  TrainConfig c;
  c.model = preset_named("gpt-10m");
  c.context_len = 1024;
  c.batch_size = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(resolve(c, cpu_target(2), std::int64_t{16} << 30), Error);
  c.batch_size = (std::int64_t{1} << 22) - 1;  // 64 GiB for the rows of a step
  EXPECT_THROW(resolve(c, cpu_target(2), std::int64_t{16} << 30), Error);
  c.batch_size = (std::int64_t{1} << 18) - 5;  // 4 GiB; a prime
  EXPECT_EQ(resolve(c, cpu_target(2), std::int64_t{16} << 30).micro_batch, 1);
}

TEST(Config, LearningRates) {
  EXPECT_NEAR(default_learning_rate(125'000'000), 6e-4, 1e-5);
  EXPECT_NEAR(default_learning_rate(1'300'000'000), 2e-4, 3e-5);
  TrainConfig c;
  c.model = preset_named("gpt-10m");
  c.optimizer.kind = OptimizerKind::kAdafactor;
  c.warmup_steps = 0;
  const TrainConfig relative = resolve(c, cpu_target(1), std::int64_t{16} << 30);
  EXPECT_FALSE(relative.optimizer.learning_rate);
  EXPECT_DOUBLE_EQ(step_rate(relative, 1), 1e-2);  // logged from the first step on, never 0
  c.optimizer.learning_rate = 6e-5;
  EXPECT_NEAR(step_rate(resolve(c, cpu_target(1), std::int64_t{16} << 30), 1), 6e-5, 1e-12);
}

}  // namespace
}  // namespace flashgpt
