// Checkpoints of a run:
//   RUN/checkpoints/step_00000120/   a Hugging Face folder (config.json, model.safetensors or shards, tokenizer.json, ...)
//                                    + trainer.json + optimizer.safetensors + COMPLETE (each file's size and checksum)
//   RUN/checkpoints/latest           the name of the newest one, written last
// A checkpoint is written under a temporary name, synced and renamed, so a kill or a full disk at any moment leaves the ones before it as
// they were. Older ones are removed in a step of its own, once the newest has shown that it is worth more than they.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "model/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/engine.h"

namespace flashgpt {

// write_extras: the files that this layer does not know (the tokenizer), into the folder given. Error(kFailure) when a weight is not
// finite: such weights never become the newest checkpoint.
void save_checkpoint(Engine& engine, const ModelConfig& model, const TrainerState& state, const SaveOptions& options,
                     const std::function<void(const std::filesystem::path&)>& write_extras, const std::filesystem::path& run);

// Removes what is older than the keep_last newest whole checkpoints (0: keeps all) up to step `newest`, and what a kill left half written.
void prune_checkpoints(const std::filesystem::path& run, std::int64_t keep_last, std::int64_t newest);

// Fills weights and optimizer state of an engine of the same model and optimizer.
TrainerState load_checkpoint(Engine& engine, const Checkpoint& checkpoint);

}  // namespace flashgpt
