// The settings of a training run as plain data, and the choices that a run makes for itself where a setting says "auto".
#pragma once
#include <optional>
#include <string>

#include "optim/schedule.h"
#include "train/engine.h"

namespace flashgpt {

struct TrainConfig {
  ModelConfig model;
  OptimizerConfig optimizer;

  std::int64_t batch_size = 32;  // rows of an optimizer step
  std::int64_t micro_batch = 0;  // rows of a forward and backward; 0: auto
  std::int64_t context_len = 0;  // tokens of a row; 0: the model's
  std::int64_t steps = 1000;
  double max_seconds = 0;  // stop (and finish the schedule) after so much training time; 0: no limit
  ScheduleKind schedule = ScheduleKind::kCosine;
  std::optional<std::int64_t> warmup_steps;  // absent: 2% of the steps, at least 10, at most a tenth of them
  double final_lr_fraction = 0.1;
  double grad_clip = 1.0;              // global norm; 0: none
  std::optional<Recompute> recompute;  // absent: auto
  std::uint64_t seed = 1;
  std::int64_t max_skips = 20;  // non-finite steps in a row before the run stops

  std::int64_t log_every = 1;
  std::int64_t eval_every = 250;                // steps; 0: only at the end
  std::int64_t eval_rows = 256;                 // rows of validation data each time; 0: all
  std::int64_t save_every = 500;                // steps; 0: only at the end
  std::int64_t keep_last = 2;                   // checkpoints; 0: all
  std::int64_t max_shard_size = 5'000'000'000;  // bytes of a file of weights; a larger model is saved in several

  attention::Implementation attention = attention::Implementation::kAuto;

  bool model_context_given = false;  // the user fixed model.context_len
};

// Checks every field, fills in what follows from others, and chooses micro_batch and recompute for the target so that the run fits its free
// memory. An Error names the field, or, when nothing fits, the bytes needed and settings that would.
TrainConfig resolve(TrainConfig c, const Target& target, std::int64_t free_memory);

EngineConfig engine_config(const TrainConfig& c);
Schedule schedule_of(const TrainConfig& c);
// The rate of an update: the schedule's, or with Adafactor's relative step its rho, warmed up alike.
double step_rate(const TrainConfig& c, std::int64_t step);

// Peak learning rates when none is given: AdamW, by number of parameters (larger models want smaller ones).
double default_learning_rate(std::int64_t parameters);

// Bytes that a new process may still take without swapping: the smaller of the system's and the cgroup's.
std::int64_t free_host_memory();
// Bytes that a run on this target may take: of the host what is free, of a GPU all but what the driver's context keeps.
std::int64_t free_memory(const Target& target);

Recompute recompute_named(const std::string& name);
const char* name_of(Recompute r);

}  // namespace flashgpt
