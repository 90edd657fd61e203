// A training run: the loop over steps with validation, log, checkpoints, resume and signals. It speaks to its face (the command line)
// through events.
//   RUN/config.yaml  RUN/train.jsonl  RUN/checkpoints/  RUN/final/  and RUN/events.out.tfevents.* for TensorBoard, one a
//   sitting
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "data/dataset.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/evaluation.h"

namespace flashgpt {

struct StepEvent {
  std::int64_t step = 0, steps = 0;
  double loss = 0;  // mean over the targets of the step; NaN when there were none
  double learning_rate = 0;
  double grad_norm = 0;
  double tokens_per_second = 0;
  std::int64_t skipped = 0;  // so far
  double eta_seconds = 0;
  std::uint64_t memory_bytes = 0;  // the arena
};

struct RunEvents {
  std::function<void(const StepEvent&)> step;
  std::function<void(const ValidationEvent&)> validation;
  std::function<void(const std::string&)> note;  // a sentence for people
};

enum class Resume : std::uint8_t { kNo, kIfThere, kMust };

struct RunOptions {
  TrainConfig config;       // resolved
  std::string config_text;  // kept as RUN/config.yaml
  std::filesystem::path run;
  Resume resume = Resume::kNo;
  std::string initial_weights;  // a model folder; empty: random
};

struct RunResult {
  TrainerState state;
  ValidationEvent validation;  // the last one; step 0 when there is no validation data
  bool finished = false;       // false: a signal stopped it, maybe in the last validation; the checkpoint can be resumed
};

// The length of the run follows from config.max_seconds when that is set: a few steps are timed and config.steps is replaced. The choice is
// made once; a resumed run has it in its configuration.
std::int64_t steps_in_time(const TrainConfig& config, const Target& target, ThreadPool& pool, const Dataset& data);

// An Error when the folder holds a run already: checkpoints or a final model. What a start that failed left is no run.
void require_new_run(const std::filesystem::path& run);
// An Error when there is no run to go on with.
void require_resumable(const std::filesystem::path& run);

RunResult train(const RunOptions& options, const Target& target, ThreadPool& pool, const Dataset& data, const RunEvents& events);

}  // namespace flashgpt
