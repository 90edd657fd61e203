#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

void save_optimizer(Engine& engine, const fs::path& path) {
  std::vector<TensorSpec> infos;
  for (const NamedTensor& s : engine.optimizer_state()) infos.push_back({.name = s.name, .dtype = s.tensor.dtype, .shape = s.tensor.shape});
  SafetensorsWriter out(path, infos);
  std::vector<std::byte> host;
  for (const NamedTensor& s : engine.optimizer_state()) {
    host.resize(s.tensor.bytes());
    download(engine.context(), s.tensor, host.data());
    out.add(s.name, host);
  }
  out.commit();
}

void load_optimizer(Engine& engine, const fs::path& path) {
  const SafetensorsFile file(path);
  require(file.tensors().size() == engine.optimizer_state().size(), path.string(), ": ", file.tensors().size(),
          " tensors, this optimizer has ", engine.optimizer_state().size());
  for (const NamedTensor& s : engine.optimizer_state()) {
    const StoredTensor& found = file.at(s.name, s.tensor.shape, s.tensor.dtype);
    upload(engine.context(), s.tensor, found.bytes.data());
  }
}

void require_finite(Engine& engine) {
  std::vector<float> host;
  for (std::size_t i = 0; i < engine.params().size(); ++i) {
    const Tensor& w = engine.weights().tensors[i];
    host.resize(static_cast<std::size_t>(w.numel()));
    download(engine.context(), w, host.data());
    if (!std::all_of(host.begin(), host.end(), [](float x) { return std::isfinite(x); }))
      throw Error(ErrorCode::kFailure,
                  cat("weight ", engine.params()[i].name, " is no longer finite: not saved, earlier checkpoints are kept; ",
                      "a lower learning rate may help"));
  }
}

}  // namespace

void save_checkpoint(Engine& engine, const ModelConfig& model, const TrainerState& state, const SaveOptions& options,
                     const std::function<void(const fs::path&)>& write_extras, const fs::path& run) {
  require_finite(engine);
  const fs::path checkpoints = run / "checkpoints", folder = checkpoints / checkpoint_name(state.step),
                 temporary = folder.string() + ".tmp";
  make_directories(checkpoints);
  std::uint64_t needed = 1 << 20;
  for (const Tensor& t : engine.weights().tensors) needed += t.bytes();
  for (const NamedTensor& s : engine.optimizer_state()) needed += s.tensor.bytes();
  const std::uint64_t free = free_bytes(checkpoints);
  require(free >= needed, "checkpoint ", folder.string(), " needs ", needed, " bytes, the disk has ", free,
          "; earlier checkpoints are kept");

  remove_tree(temporary);
  try {
    make_directories(temporary);
    save_model(engine.context(), model, engine.params(), engine.weights(), options, temporary);
    save_optimizer(engine, temporary / "optimizer.safetensors");
    write_extras(temporary);
    write_trainer_state(temporary / "trainer.json", state);
    write_complete(temporary);
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
  remove_tree(folder);  // an unfinished or damaged one of the same step
  rename_path(temporary, folder);
  fsync_directory(checkpoints);
  write_atomic(checkpoints / "latest", folder.filename().string() + "\n");
}

void prune_checkpoints(const fs::path& run, std::int64_t keep_last, std::int64_t newest) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (const fs::path& path : list_directory(run / "checkpoints")) {
    if (path.filename().string().starts_with("step_") && path.extension() == ".tmp") remove_tree(path);
    if (const std::int64_t step = checkpoint_step(path.filename().string()); step >= 0 && step <= newest) found.emplace_back(step, path);
  }
  if (keep_last <= 0) return;
  std::sort(found.begin(), found.end(), std::greater<>());
  std::int64_t kept = 0;
  for (const auto& [step, path] : found) {
    if (kept >= keep_last)
      remove_tree(path);
    else if (checkpoint_fault(path, Look::kSizes).empty())  // a damaged one does not count
      ++kept;
  }
}

TrainerState load_checkpoint(Engine& engine, const Checkpoint& checkpoint) {
  load_weights(engine.context(), engine.params(), engine.weights(), checkpoint.folder);
  load_optimizer(engine, checkpoint.folder / "optimizer.safetensors");
  return read_trainer_state(checkpoint.folder / "trainer.json");
}

}  // namespace flashgpt
