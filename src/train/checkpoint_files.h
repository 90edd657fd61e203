// The files of a checkpoint that say what it is: trainer.json, where the run stood, and COMPLETE, a list of its files with their sizes and
// checksums. Both are read as what they are, files that a crash or another hand may have left: every fault is an Error or a text.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

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

enum class Look : std::uint8_t { kSizes, kChecksums };

std::string checkpoint_name(std::int64_t step);         // "step_00000120"
std::int64_t checkpoint_step(const std::string& name);  // of such a name; -1: it is not one of ours

void write_trainer_state(const std::filesystem::path& path, const TrainerState& state);
TrainerState read_trainer_state(const std::filesystem::path& path);

// Lists every file that is in the folder now. Written last.
void write_complete(const std::filesystem::path& folder);
// Why the checkpoint in the folder cannot be used; empty when it can.
std::string checkpoint_fault(const std::filesystem::path& folder, Look look);

// The newest checkpoint whose every file has the size and checksum that COMPLETE says. Each one passed over is told to `note`.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& run, const std::function<void(const std::string&)>& note);

}  // namespace flashgpt
