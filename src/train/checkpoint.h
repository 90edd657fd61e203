// Checkpoints of a run:
//   RUN/checkpoints/step_00000120/   a Hugging Face folder (config.json, model.safetensors or shards, tokenizer.json, ...)
//                                    + trainer.json + optimizer.safetensors + COMPLETE (each file's size and checksum)
//   RUN/checkpoints/latest           the name of the newest one, written last
// A checkpoint is written under a temporary name, synced and renamed, so a kill or a full disk at any moment leaves the ones before it as
// they were. Older ones are removed in a step of its own, once the newest has shown that it is worth more than they.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "model/checkpoint.h"
#include "train/engine.h"

namespace flashgpt {

// Where a run stands, beside weights and optimizer: numbers that do not depend on threads or ranks.
struct TrainerState {
  std::int64_t step = 0;     // steps done, skipped ones included
  std::int64_t updates = 0;  // steps that changed the weights
  std::int64_t skipped = 0;
  std::int64_t skipped_in_row = 0;
  std::int64_t position = 0;  // rows of the endless order of data that were consumed
  std::int64_t tokens = 0;    // targets trained on
  double seconds = 0;         // of training, all sittings
  std::uint64_t data_checksum = 0;
  std::uint64_t seed = 0;
  std::int64_t context_len = 0;  // of the rows that position counts
  std::string blas;              // library and kernels, instruction set: a resume elsewhere is not bitwise
  bool operator==(const TrainerState&) const = default;
};

struct Checkpoint {
  std::filesystem::path folder;
  std::int64_t step = 0;
};

// write_extras: the files that this layer does not know (the tokenizer), into the folder given. Error(kFailure) when a weight is not
// finite: such weights never become the newest checkpoint.
void save_checkpoint(Engine& engine, const ModelConfig& model, const TrainerState& state, const SaveOptions& options,
                     const std::function<void(const std::filesystem::path&)>& write_extras, const std::filesystem::path& run);

// Removes what is older than the keep_last newest whole checkpoints (0: keeps all) up to step `newest`, and what a kill left half written.
void prune_checkpoints(const std::filesystem::path& run, std::int64_t keep_last, std::int64_t newest);

// The newest checkpoint whose every file has the size and checksum that COMPLETE says. Each one passed over is told to `note`.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& run, const std::function<void(const std::string&)>& note);

// Fills weights and optimizer state of an engine of the same model and optimizer.
TrainerState load_checkpoint(Engine& engine, const Checkpoint& checkpoint);

}  // namespace flashgpt
