// The settings of a training as the user gives them, and their rows of the option table.
#pragma once
#include <memory>
#include <string>

#include "data/dataset.h"
#include "io/options.h"
#include "train/config.h"

namespace flashgpt::cli {

struct Settings {
  TrainConfig train;
  std::string preset = "gpt-10m";
  std::string backend = "auto";
  std::string precision = "fp32";
  std::int64_t threads = 0;  // 0: all that this process may use
  std::string data;          // a folder of `data prepare`, or text
  double val_fraction = 0.05;
  std::int64_t max_bytes = 0;
  std::int64_t vocab_size = 0;  // of the tokenizer that is learned from text; 0: bytes
  std::string tokenizer;        // one to take instead
  bool model_loaded = false;    // train.model came with weights: its vocabulary is not the data's to choose
};

void add_machine_options(OptionTable& table, Settings& s);
void add_training_options(OptionTable& table, Settings& s);
// A positional is a configuration too; one at most, else an Error(kUsage).
void take_config(Arguments& arguments, const std::string& command);
// Files, flags and overrides, in this order; then the preset under them.
void read_settings(OptionTable& table, const Arguments& arguments, Settings& s);

// Where the model is when a run's folder is given: its final/, else its newest checkpoint, and says so; any other path as it is.
std::string model_folder(const std::string& path);

// The machine that the settings ask for. Error(kDevice) for a backend that this build or machine does not have.
Target target_of(const Settings& s);
// "2 threads, avx2"; "GPU of compute capability 9.0, 132 multiprocessors".
std::string description(const Target& target);
std::unique_ptr<ThreadPool> pool_of(const Target& target);

// The training with every automatic choice made. data: its vocabulary, unless the user gave one; may be null. free_memory: bytes that the
// run may take.
TrainConfig resolve_settings(const OptionTable& table, const Settings& s, const Target& target, const Dataset* data,
                             std::int64_t free_memory);

}  // namespace flashgpt::cli
