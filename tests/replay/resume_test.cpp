// Faults of other trainers on resume, on a signal and in a save, replayed with the built program. Numbers are those of our list of faults.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "data/prepare.h"
#include "data/temporary_folder.h"
#include "io/file.h"
#include "replay/program.h"
#include "train/checkpoint.h"
#include "train/signals.h"

namespace flashgpt::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class ReplayProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int d = 0; d < 8; ++d) {
      std::string text;
      for (int i = 0; i < 60; ++i) text += cat("line ", i * (d + 1), " of ", d, "\n");
      folder_.file(cat("text/", d, ".txt"), text);
    }
    prepare({.inputs = {folder_.path("text")}, .out = folder_.path("data"), .val_fraction = 0.3});
  }

  // Arguments of a small training into the folder `run`; later ones win.
  std::vector<std::string> train(const std::string& run, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args{"train", "--out", folder_.path(run), "--threads=2"};
    if (!resumes(more) || !fs::exists(folder_.path(run + "/config.yaml"))) {
      for (const char* a : {"model.preset=gpt-10m", "model.layers=1", "model.width=16", "model.heads=2", "train_params.context_len=32",
                            "train_params.batch_size=6", "train_params.micro_batch=2", "train_params.steps=6", "train_params.eval_every=0",
                            "train_params.save_every=2"})
        args.push_back(a);
      args.push_back("--data=" + folder_.path("data"));
    }
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static bool resumes(const std::vector<std::string>& args) {
    return std::any_of(args.begin(), args.end(), [](const std::string& a) { return a.starts_with("--resume"); });
  }
  std::string output_file() const { return folder_.path("output.txt"); }
  int run(const std::vector<std::string>& args) {
    Program p(args, output_file());
    const int code = p.wait();
    output_ = p.output();
    return code;
  }
  std::string weights(const std::string& run) const { return read_file(folder_.path(run + "/final/model.safetensors")); }
  std::vector<Json> log(const std::string& run) const {
    std::vector<Json> lines;
    std::ifstream in(folder_.path(run + "/train.jsonl"));
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  Json last(const std::string& run, const std::string& key) const {  // the newest line that has the key
    Json found;
    for (const Json& line : log(run))
      if (line.contains(key)) found = line;
    return found;
  }
  std::size_t count(const std::string& run, const std::string& what) const {  // in the log
    const std::string text = folder_.read(run + "/train.jsonl");              // empty when it is not there
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  }
  std::int64_t newest(const std::string& run) const {
    const auto found = newest_checkpoint(folder_.path(run), [](const std::string&) {});
    return found ? found->step : -1;
  }

  TemporaryFolder folder_;
  std::string output_;
};

// 20: two runs of the same seed, with other numbers of threads, leave the same bytes: checkpoints, final model, and the log but for its
// times. 29: the log has the checksum of the data.
TEST_F(ReplayProgram, TwoRunsLeaveTheSameBytes) {
  ASSERT_EQ(run(train("a", {"train_params.eval_every=3"})), 0) << output_;
  ASSERT_EQ(run(train("b", {"train_params.eval_every=3", "--threads=1"})), 0) << output_;
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path("a"))) {
    const std::string name = fs::relative(entry.path(), folder_.path("a")).string(), file = entry.path().filename().string();
    // These hold times, and what follows from them; or the process.
    if (!entry.is_regular_file() || file == "trainer.json" || file == "COMPLETE" || name == "train.jsonl" || name == "config.yaml" ||
        file == ".lock" || file.starts_with("events.out"))
      continue;
    ASSERT_TRUE(fs::exists(folder_.path("b/" + name))) << name;
    EXPECT_TRUE(folder_.read("a/" + name) == folder_.read("b/" + name)) << name;
    ++compared;
  }
  EXPECT_GE(compared, 14);
  const std::vector<Json> a = log("a"), b = log("b");
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a[0].at("data_checksum").get<std::uint64_t>(), read_meta(folder_.path("data")).checksum());
  for (std::size_t i = 1; i < a.size(); ++i) {
    for (const auto& [key, value] : a[i].items()) {
      if (key == "tokens_per_second" || key == "resident_bytes") continue;
      EXPECT_EQ(value, b[i].at(key)) << i << " " << key;
    }
  }
}

// 45: settings given on resume were ignored; 35: those of the checkpoint overrode them. What is given wins, the rest stays as it was.
TEST_F(ReplayProgram, WhatIsGivenOnResumeWinsAndTheRestStays) {
  ASSERT_EQ(run(train("run", {"train_params.micro_batch=auto"})), 0) << output_;
  const double rate = last("run", "learning_rate").at("learning_rate");
  EXPECT_EQ(log("run")[0].at("micro_batch"), 6);

  ASSERT_EQ(run(train("run", {"--resume", "train_params.steps=8"})), 0) << output_;
  EXPECT_EQ(last("run", "batch_size").at("micro_batch"), 6);
  EXPECT_EQ(last("run", "learning_rate").at("step"), 8);
  EXPECT_DOUBLE_EQ(last("run", "learning_rate").at("learning_rate"), rate);  // the end of the same schedule, of the same peak

  ASSERT_EQ(run(train("run", {"--resume", "train_params.steps=10", "--learning-rate=5e-4", "--schedule=constant", "--micro-batch=3"})), 0);
  EXPECT_EQ(last("run", "batch_size").at("micro_batch"), 3);
  EXPECT_DOUBLE_EQ(last("run", "learning_rate").at("learning_rate"), 5e-4);

  // The micro-batch was for six rows; it must not forbid four, nor make them one by one.
  ASSERT_EQ(run(train("run", {"--resume", "train_params.steps=12", "--batch-size=4"})), 0) << output_;
  EXPECT_EQ(last("run", "batch_size").at("micro_batch"), 4);
  EXPECT_DOUBLE_EQ(last("run", "learning_rate").at("learning_rate"), 5e-4);
}

// 45: a restart loop gives the same configuration each time; its "auto" means what the run chose the first time.
TEST_F(ReplayProgram, AutomaticChoicesOutliveARestart) {
  ASSERT_EQ(run(train("run", {"--recompute=mlp"})), 0) << output_;
  const std::string config = folder_.file("again.yaml", "train_params: {micro_batch: auto, recompute: auto, steps: 8}\n");
  ASSERT_EQ(run(train("run", {"--resume=auto", "--config", config})), 0) << output_;
  EXPECT_EQ(last("run", "batch_size").at("micro_batch"), 2);
  EXPECT_EQ(last("run", "batch_size").at("recompute"), "mlp");
  EXPECT_EQ(last("run", "batch_size").at("steps"), 8);
}

// A time limit chooses the number of steps once; given again by a restart loop it is said to change nothing.
TEST_F(ReplayProgram, ATimeLimitIsMeasuredOnce) {
  ASSERT_EQ(run(train("run", {"--max-seconds=0.2", "train_params.save_every=0"})), 0) << output_;
  const std::int64_t steps = last("run", "batch_size").at("steps"), done = newest("run");
  EXPECT_EQ(steps, done);
  ASSERT_EQ(run(train("run", {"--resume=auto", "--max-seconds=100"})), 0) << output_;
  EXPECT_NE(output_.find(cat("max_seconds = 100 is not used again: the run has ", steps, " steps")), std::string::npos) << output_;
  EXPECT_EQ(newest("run"), done);
}

// 42, 45: what cannot be followed on resume is an error that names it, not silence.
TEST_F(ReplayProgram, WhatAResumeCannotFollowIsAnError) {
  std::vector<std::string> args = train("run");
  for (std::string& a : args)
    if (a.starts_with("--data=")) a = "--data=" + folder_.path("text");
  ASSERT_EQ(run(args), 0) << output_;
  const std::string before = folder_.read("run/data/meta.json"), config = folder_.read("run/config.yaml");
  folder_.file("text/9.txt", "text that came later\n");

  EXPECT_EQ(run(args), 3);  // without --resume: refused, and the data of the run is as it was
  EXPECT_NE(output_.find("--resume"), std::string::npos) << output_;
  EXPECT_EQ(folder_.read("run/data/meta.json"), before);
  EXPECT_EQ(folder_.read("run/config.yaml"), config);
  EXPECT_EQ(run(train("run", {"--resume", "--data=" + folder_.path("text/9.txt")})), 3);
  EXPECT_NE(output_.find("data.path"), std::string::npos) << output_;
  EXPECT_EQ(run(train("run", {"--resume", "--data=" + folder_.path("data")})), 3);
  EXPECT_EQ(run(train("run", {"--resume", "--context-len=16", "train_params.steps=8"})), 3);
  EXPECT_NE(output_.find("context_len = 16"), std::string::npos) << output_;
  EXPECT_EQ(run(train("run", {"--resume", "--optimizer=adafactor", "train_params.steps=8"})), 3);
  EXPECT_EQ(folder_.read("run/config.yaml"), config);
  args.insert(args.end(), {"--resume=auto", "train_params.steps=8"});  // the same --data again is no contradiction
  EXPECT_EQ(run(args), 0) << output_;
}

// Two processes in one folder wrote over each other's checkpoints.
TEST_F(ReplayProgram, ASecondRunInAFolderIsRefused) {
  Program first(train("run", {"train_params.steps=1000000"}), folder_.path("first.txt"));
  ASSERT_TRUE(first.until([&] { return newest("run") >= 2; }));
  for (const char* resume : {"--resume", "--resume=auto"}) {
    EXPECT_EQ(run(train("run", {resume})), 3);
    EXPECT_NE(output_.find("in use by process"), std::string::npos) << output_;
  }
  EXPECT_EQ(run(train("run")), 3);
  EXPECT_TRUE(first.running());
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), 0);
}

// A start that failed leaves nothing that the next one trips over; a resume of nothing prepares no data.
TEST_F(ReplayProgram, AFailedStartIsNoRun) {
  EXPECT_EQ(run(train("run", {"--learning-rate=1e38", "train_params.max_skips=1", "--grad-clip=0", "--warmup-steps=0"})), 1) << output_;
  EXPECT_NE(output_.find("no checkpoint yet"), std::string::npos) << output_;
  EXPECT_EQ(run(train("run")), 0) << output_;
  EXPECT_EQ(count("run", "data_checksum"), 1u);
  EXPECT_EQ(run({"train", "--out", folder_.path("nothing"), "--resume", "--data", folder_.path("text")}), 3);
  EXPECT_FALSE(fs::exists(folder_.path("nothing")));
}

// The data's place was kept relative to the folder of the first start.
TEST_F(ReplayProgram, ARunGoesOnFromAnotherFolder) {
  const fs::path here = fs::current_path();
  std::vector<std::string> args = train("run");
  for (std::string& a : args)
    if (a.starts_with("--data=")) a = "--data=" + fs::relative(folder_.path("data"), here).string();
  ASSERT_EQ(run(args), 0) << output_;
  fs::current_path(folder_.path("run"));
  EXPECT_EQ(run(train("run", {"--resume", "train_params.steps=8"})), 0) << output_;
  fs::current_path(here);
}

// 53: fewer steps on resume than were done tripped an assertion.
TEST_F(ReplayProgram, FewerStepsThanWereDone) {
  ASSERT_EQ(run(train("run")), 0) << output_;
  const std::string done = weights("run");
  EXPECT_EQ(run(train("run", {"--resume", "train_params.steps=3"})), 0) << output_;
  EXPECT_NE(output_.find("step 6 of 3"), std::string::npos) << output_;
  EXPECT_EQ(weights("run"), done);
}

// 49: a kill in the middle of a save left a broken newest checkpoint. Killed at ten random moments of a run that saves at each step, it
// never loses a checkpoint and ends with the same weights.
TEST_F(ReplayProgram, KilledAtTenRandomMoments) {
  const std::vector<std::string> settings{"train_params.save_every=1", "train_params.steps=40", "train_params.keep_last=1"};
  std::vector<std::string> again = settings;
  again.push_back("--resume=auto");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run(train("whole", settings)), 0) << output_;
  const auto step = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin) / 40;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(cat("seed ", seed));
  std::mt19937 random(seed);
  int kills = 0, in_a_save = 0;
  for (std::int64_t at_least = -1; kills < 10;) {
    const std::size_t sittings = newest("killed") < 0 ? 0 : count("killed", "\"event\":\"");  // without a checkpoint the log begins anew
    Program p(train("killed", again), output_file());
    p.until([&] { return count("killed", "\"event\":\"") > sittings; });
    std::this_thread::sleep_for(step * (random() % 150) / 100);
    p.send(SIGKILL);
    if (const int code = p.wait(); code != -SIGKILL) {  // it was done before
      ASSERT_EQ(code, 0) << p.output();
      break;
    }
    ++kills;
    if (fs::exists(folder_.path("killed/checkpoints")))
      for (const auto& entry : fs::directory_iterator(folder_.path("killed/checkpoints"))) in_a_save += entry.path().extension() == ".tmp";
    const std::int64_t now = newest("killed");
    ASSERT_GE(now, at_least);
    at_least = now;
  }
  EXPECT_GE(kills, 3);
  RecordProperty("kills", kills);
  RecordProperty("in_a_save", in_a_save);
  ASSERT_EQ(run(train("killed", again)), 0) << output_;
  EXPECT_TRUE(weights("whole") == weights("killed"));
  for (const auto& entry : fs::directory_iterator(folder_.path("killed/checkpoints")))
    EXPECT_FALSE(entry.path().filename().string().starts_with("step_") && entry.path().extension() == ".tmp") << entry.path();
}

// 51: a signal to stop was swallowed, or its save never came. In a step, in a save, in a validation, in the last validation: the program
// ends with 0, says how to go on, and the run that goes on ends with the same weights.
TEST_F(ReplayProgram, AStopSignalAtAnyMoment) {
  struct Moment {
    std::string name;
    int signal;
    std::vector<std::string> settings;
  };
  const std::vector<Moment> moments{
      {"step", SIGTERM, {"train_params.steps=6", "train_params.batch_size=120", "train_params.save_every=0"}},
      {"save", SIGINT, {"train_params.steps=6", "train_params.save_every=1"}},
      {"validation", SIGTERM, {"train_params.steps=4", "train_params.eval_every=1", "--eval-rows=all", "train_params.save_every=0"}},
      {"last validation", SIGUSR1, {"train_params.steps=1", "train_params.save_every=0"}}};
  int stopped = 0;
  for (const Moment& m : moments) {
    const std::string whole = "whole " + m.name;
    ASSERT_EQ(run(train(whole, m.settings)), 0) << output_;
    Program p(train(m.name, m.settings), output_file());
    ASSERT_TRUE(p.until([&] { return count(m.name, "\"step\":1,") > 0; })) << p.output();
    p.send(m.signal);
    EXPECT_EQ(p.wait(), 0) << p.output();
    if (!fs::exists(folder_.path(m.name + "/final"))) {  // else it was faster than the signal
      ++stopped;
      EXPECT_NE(p.output().find("stopped by SIG"), std::string::npos) << p.output();
      EXPECT_EQ(newest(m.name), last(m.name, "grad_norm").at("step").get<std::int64_t>());  // no step that was done is lost
      EXPECT_EQ(run(train(m.name, {"--resume"})), 0) << output_;
    }
    EXPECT_TRUE(weights(whole) == weights(m.name)) << m.name;
  }
  EXPECT_GE(stopped, 2);
}

// 51: the second signal ends the program at once, in the middle of what it does.
TEST_F(ReplayProgram, TheSecondStopSignalEndsAtOnce) {
  Program p(train("run", {"train_params.steps=1000", "train_params.save_every=2"}), output_file());
  ASSERT_TRUE(p.until([&] { return newest("run") >= 2; })) << p.output();
  p.send(SIGTERM);
  p.send(SIGINT);  // two kinds, since two of a kind may become one before the program sees them
  const int code = p.wait();
  EXPECT_TRUE(code == 128 + SIGTERM || code == 128 + SIGINT) << code << p.output();
  EXPECT_EXIT(
      {
        catch_stop_signals();
        ::raise(SIGTERM);
        if (!stop_requested()) ::_exit(1);
        ::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(143), "");
}

}  // namespace
}  // namespace flashgpt::testing
