// Faults of other trainers in the loop over steps, replayed with whole runs in this process. Numbers are those of our list of faults.
#include "train/run.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/loader.h"
#include "data/prepare.h"
#include "data/temporary_folder.h"
#include "model/checkpoint.h"
#include "replay/rows.h"
#include "train/signals.h"

namespace flashgpt::testing {
namespace {

using Json = nlohmann::json;

class ReplayRun : public ::testing::Test {
 protected:
  void SetUp() override {
    // Documents of 12 bytes and, in between, of 40.
    for (int d = 0; d < 60; ++d) folder_.file(cat("text/", d, ".txt"), cat(std::string(d % 15 ? 8 : 36, 'a'), d % 10, d / 10, "b\n"));
    prepare({.inputs = {folder_.path("text")}, .out = folder_.path("data"), .val_fraction = 0});
    data_.emplace(Dataset::open(folder_.path("data")));
  }

  TrainConfig config(std::int64_t steps, std::int64_t batch_size, std::int64_t micro_batch) const {
    TrainConfig c;
    c.model = {.layers = 1, .width = 16, .heads = 2, .vocab_size = data_->info().tokenizer.vocab_size, .context_len = 32};
    c.batch_size = batch_size;
    c.micro_batch = micro_batch;
    c.steps = steps;
    c.schedule = ScheduleKind::kConstant;
    c.warmup_steps = 0;
    c.optimizer.learning_rate = 3e-3;
    return resolve(c, cpu_target(2), std::int64_t{1} << 30);
  }
  RunResult go(const TrainConfig& c, const char* name, Resume resume = Resume::kNo, std::int64_t stop_at = -1,
               const std::string& init = "") {
    catch_stop_signals();
    events_.clear();
    const RunEvents events{.step =
                               [&](const StepEvent& e) {
                                 events_.push_back(e);
                                 if (e.step == stop_at) ::raise(SIGTERM);
                               },
                           .validation = [](const ValidationEvent&) {},
                           .note = [](const std::string&) {}};
    return train({.config = c, .config_text = "seed: 1\n", .run = folder_.path(name), .resume = resume, .initial_weights = init},
                 cpu_target(2), pool_, *data_, events);
  }
  // Row by row, without the run's loop.
  RowCounts counts(const TrainConfig& c, std::int64_t first, std::int64_t rows) const {
    StepRows buffer(rows, rows, c.context_len);
    return buffer.fill(TrainLoader(data_->train(), c.context_len, c.seed), first);
  }
  std::string weights(const char* name) const { return folder_.read(std::string(name) + "/final/model.safetensors"); }

  TemporaryFolder folder_;
  ThreadPool pool_{2, false};
  std::optional<Dataset> data_;
  std::vector<StepEvent> events_;
};

// 42, 43: with accumulation the loader went on at the wrong row (micro-steps counted as steps), and with another batch it lost its place.
TEST_F(ReplayRun, AResumeGoesOnAtTheNextRow) {
  const TrainConfig six = config(5, 6, 2), two = config(5, 2, 1);
  const RunResult stopped = go(six, "run", Resume::kNo, 3);
  EXPECT_EQ(stopped.state.position, 18);
  EXPECT_EQ(stopped.state.tokens, counts(six, 0, 18).targets);

  // The loss of rows 18 and 19 under the checkpoint's weights is that of step 4.
  Engine engine(cpu_target(2), engine_config(two), pool_);
  load_checkpoint(engine, {folder_.path("run/checkpoints/step_00000003"), 3});
  StepRows rows(2, 1, two.context_len);
  const std::int64_t targets = rows.fill(TrainLoader(data_->train(), two.context_len, two.seed), 18).targets;
  double loss = 0;
  for (std::int64_t m = 0; m < 2; ++m) {
    const RowBuffers b = rows.micro(m);
    loss += engine.evaluate({b.tokens, b.targets, b.positions, b.cu_seqlens});
  }
  const RunResult end = go(two, "run", Resume::kMust);
  EXPECT_EQ(end.state.position, 22);
  EXPECT_EQ(end.state.tokens, counts(six, 0, 22).targets);
  EXPECT_NEAR(events_.at(0).loss, loss / static_cast<double>(targets), 1e-6);

  go(six, "whole");
  go(six, "parts", Resume::kNo, 1);
  go(six, "parts", Resume::kMust, 4);
  go(six, "parts", Resume::kMust);
  EXPECT_TRUE(weights("whole") == weights("parts"));
}

// 6, 9, 10: the check for NaN ran on logged steps only, after the update, and a step passed over went by in silence. Here a row of the
// position table is so large that steps with a long document have no finite loss. Each of them is skipped, counted and logged, and the run
// ends with the weights of one that never saw them.
TEST_F(ReplayRun, StepsWithoutAFiniteLossAreSkippedLoggedOrNot) {
  TrainConfig c = config(24, 2, 1);
  c.log_every = 10;
  Engine engine(cpu_target(2), engine_config(c), pool_);
  engine.initialise_weights(c.seed);
  for (std::int64_t i = 0; i < 16; ++i) engine.weights().tensors[1].as<float>()[20 * 16 + i] = 3e38f;
  folder_.file("init/x", "");
  save_model(engine.context(), c.model, engine.params(), engine.weights(), {.end_of_text = data_->info().tokenizer.end_of_text},
             folder_.path("init"));

  std::vector<std::int64_t> bad;
  StepRows rows(c.batch_size, c.micro_batch, c.context_len);
  const TrainLoader loader(data_->train(), c.context_len, c.seed);
  std::int64_t updates = 0;
  for (std::int64_t step = 1; step <= c.steps; ++step) {
    const RowCounts n = rows.fill(loader, (step - 1) * c.batch_size);
    const RowBuffers all = rows.micro(0);
    if (std::find(all.positions, all.positions + c.batch_size * c.context_len, 20) != all.positions + c.batch_size * c.context_len) {
      bad.push_back(step);
      continue;
    }
    engine.begin_step({.learning_rate = step_rate(c, step), .targets = n.targets, .update = ++updates, .max_norm = c.grad_clip});
    for (std::int64_t m = 0; m < 2; ++m) {
      const RowBuffers b = rows.micro(m);
      engine.micro_step({b.tokens, b.targets, b.positions, b.cu_seqlens});
    }
    ASSERT_FALSE(engine.end_step().skipped) << step;
  }
  ASSERT_GE(bad.size(), 2u);
  ASSERT_LT(bad.size(), 20u);
  EXPECT_TRUE(std::any_of(bad.begin(), bad.end(), [](std::int64_t step) { return step % 10 != 0; }));

  const RunResult r = go(c, "run", Resume::kNo, -1, folder_.path("init"));
  EXPECT_EQ(r.state.skipped, static_cast<std::int64_t>(bad.size()));
  EXPECT_EQ(r.state.updates, updates);
  std::vector<std::int64_t> said;
  std::int64_t skipped = 0;
  for (const StepEvent& e : events_) {
    if (e.skipped > skipped) said.push_back(e.step);
    skipped = e.skipped;
  }
  EXPECT_EQ(said, bad);
  std::istringstream log(folder_.read("run/train.jsonl"));
  std::size_t lines = 0;
  for (std::string line; std::getline(log, line);) lines += std::count(bad.begin(), bad.end(), Json::parse(line).value("step", 0)) > 0;
  EXPECT_EQ(lines, bad.size());
  save_model(engine.context(), c.model, engine.params(), engine.weights(), {.end_of_text = data_->info().tokenizer.end_of_text},
             folder_.path("init"));
  EXPECT_TRUE(weights("run") == folder_.read("init/model.safetensors"));
}

// 50: weights gone bad were saved and the good checkpoint was removed. One checkpoint is kept; the rate makes the weights NaN at once, or
// finite but of no use.
TEST_F(ReplayRun, BadWeightsNeverPushOutTheLastGoodCheckpoint) {
  for (const double rate : {1e39, 1e30}) {
    const std::string name = cat("run", rate);
    TrainConfig good = config(8, 2, 2);
    good.keep_last = 1;
    good.save_every = 1;
    go(good, name.c_str(), Resume::kNo, 3);
    TrainConfig bad = good;
    bad.optimizer.learning_rate = rate;
    bad.max_skips = 4;
    bad.grad_clip = 0;
    const std::string error = error_of([&] { go(bad, name.c_str(), Resume::kMust); });
    EXPECT_NE(error.find("finite"), std::string::npos) << error;
    EXPECT_NE(error.find("learning rate"), std::string::npos) << error;
    EXPECT_TRUE(std::filesystem::exists(folder_.path(name + "/checkpoints/step_00000003/COMPLETE"))) << error;
    const auto newest = newest_checkpoint(folder_.path(name), [](const std::string&) {});
    EXPECT_EQ(newest->step, rate > 1e38 ? 3 : 4);
    std::filesystem::remove_all(folder_.path(name + "/checkpoints/step_00000004"));
    EXPECT_TRUE(go(good, name.c_str(), Resume::kMust).finished);
    go(good, (name + "whole").c_str());
    EXPECT_TRUE(weights(name.c_str()) == weights((name + "whole").c_str()));
    std::int64_t kept = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path(name + "/checkpoints"))) kept += entry.is_directory();
    EXPECT_EQ(kept, 1);
  }
}

// 49, 52: damaged and unfinished checkpoints, also of steps to come, counted among those to keep, so that whole ones were removed.
TEST_F(ReplayRun, DamagedCheckpointsAreNotCountedAsKept) {
  TrainConfig c = config(6, 2, 2);
  c.keep_last = 1;
  c.save_every = 1;
  go(c, "run", Resume::kNo, 3);
  std::filesystem::create_directories(folder_.path("run/checkpoints/step_00000099"));      // no COMPLETE
  std::filesystem::create_directories(folder_.path("run/checkpoints/step_00000002.tmp"));  // killed while it was written
  go(c, "run", Resume::kMust, 5);
  EXPECT_EQ(newest_checkpoint(folder_.path("run"), [](const std::string&) {})->step, 5);
  const std::string file = folder_.path("run/checkpoints/step_00000005/optimizer.safetensors");
  EXPECT_EQ(newest_checkpoint(folder_.path("run"), [](const std::string&) {})->step, 5);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_EQ(newest_checkpoint(folder_.path("run"), [](const std::string&) {})->step, 4);  // kept until step 6 has shown a finite loss
  EXPECT_TRUE(go(c, "run", Resume::kMust).finished);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run/checkpoints/step_00000002.tmp")));
}

// 14: the rate is there, and logged, from step 1 on, with and without a given one.
TEST_F(ReplayRun, TheRateOfStepOneIsLogged) {
  for (const bool relative : {true, false}) {
    TrainConfig c = config(2, 2, 2);
    c.optimizer = {.kind = OptimizerKind::kAdafactor};
    if (!relative) c.optimizer.learning_rate = 6e-5;
    c.warmup_steps = 2;
    const std::string name = relative ? "relative" : "given";
    go(c, name.c_str());
    ASSERT_EQ(events_.size(), 2u);
    EXPECT_DOUBLE_EQ(events_[0].learning_rate, relative ? 0.5e-2 : 3e-5);
    EXPECT_EQ(folder_.read(name + "/train.jsonl").find("\"learning_rate\":0,"), std::string::npos);
    EXPECT_TRUE(std::isfinite(events_[1].loss));
  }
}

}  // namespace
}  // namespace flashgpt::testing
