#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/copy.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kComplete = "COMPLETE";
constexpr int kFormat = 1;

std::string step_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return "step_" + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

// The step of a folder's name; -1 when it is not one of ours.
std::int64_t step_of(const std::string& name) {
  if (!name.starts_with("step_") || name.size() > 20) return -1;
  const std::string digits = name.substr(5);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(digits);
}

std::string hex(std::uint64_t x) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(x));
  return text;
}

std::string checksum_of(const fs::path& file) {
  const MappedFile mapped(file);
  return hex(checksum64(mapped.bytes()));
}

Json state_json(const TrainerState& s) {
  return {{"format", kFormat},
          {"step", s.step},
          {"updates", s.updates},
          {"skipped", s.skipped},
          {"skipped_in_row", s.skipped_in_row},
          {"position", s.position},
          {"tokens", s.tokens},
          {"seconds", s.seconds},
          {"data_checksum", hex(s.data_checksum)},
          {"seed", s.seed},
          {"context_len", s.context_len},
          {"blas", s.blas}};
}

TrainerState state_of(const Json& j, const std::string& what) {
  try {
    const int format = j.at("format").get<int>();
    require(format == kFormat, what, ": format = ", format, ", this program reads ", kFormat);
    return {.step = j.at("step"),
            .updates = j.at("updates"),
            .skipped = j.at("skipped"),
            .skipped_in_row = j.at("skipped_in_row"),
            .position = j.at("position"),
            .tokens = j.at("tokens"),
            .seconds = j.at("seconds"),
            .data_checksum = std::stoull(j.at("data_checksum").get<std::string>(), nullptr, 16),
            .seed = j.at("seed"),
            .context_len = j.value("context_len", std::int64_t{0}),
            .blas = j.at("blas")};
  } catch (const Json::exception& e) {
    fail(what, ": ", e.what());
  }
}

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

enum class Look : std::uint8_t { kSizes, kChecksums };

// Why a checkpoint cannot be used; empty when it can.
std::string fault_of(const fs::path& folder, Look look) {
  try {
    const fs::path list = folder / kComplete;
    if (!exists(list)) return "it was never finished";
    const Json complete = parse_json(read_file(list), list.string());
    for (const auto& [name, entry] : complete.items()) {
      const fs::path file = folder / name;
      if (!exists(file)) return name + " is missing";
      const auto size = file_size(file);
      if (static_cast<std::uint64_t>(size) != entry.at("bytes").get<std::uint64_t>())
        return cat(name, " has ", size, " bytes, expected ", entry.at("bytes").get<std::uint64_t>());
      if (look == Look::kChecksums && checksum_of(file) != entry.at("checksum").get<std::string>())
        return name + " does not have the checksum it was written with";
    }
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

void sync_folder_files(const fs::path& folder, Json& complete) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& file = entry.path();
    complete[file.filename().string()] = {{"bytes", file_size(file)}, {"checksum", checksum_of(file)}};
  }
}

}  // namespace

void save_checkpoint(Engine& engine, const ModelConfig& model, const TrainerState& state, const SaveOptions& options,
                     const std::function<void(const fs::path&)>& write_extras, const fs::path& run) {
  require_finite(engine);
  const fs::path checkpoints = run / "checkpoints", folder = checkpoints / step_name(state.step), temporary = folder.string() + ".tmp";
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
    write_atomic(temporary / "trainer.json", pretty_json(state_json(state)));
    Json complete = Json::object();
    sync_folder_files(temporary, complete);
    write_atomic(temporary / kComplete, pretty_json(complete));
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
    if (const std::int64_t step = step_of(path.filename().string()); step >= 0 && step <= newest) found.emplace_back(step, path);
  }
  if (keep_last <= 0) return;
  std::sort(found.begin(), found.end(), std::greater<>());
  std::int64_t kept = 0;
  for (const auto& [step, path] : found) {
    if (kept >= keep_last)
      remove_tree(path);
    else if (fault_of(path, Look::kSizes).empty())  // a damaged one does not count
      ++kept;
  }
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& run, const std::function<void(const std::string&)>& note) {
  const fs::path checkpoints = run / "checkpoints";
  std::vector<Checkpoint> found;
  if (!exists(checkpoints)) return std::nullopt;
  for (const auto& entry : fs::directory_iterator(checkpoints))
    if (const std::int64_t step = step_of(entry.path().filename().string()); step >= 0) found.push_back({entry.path(), step});
  std::sort(found.begin(), found.end(), [](const Checkpoint& a, const Checkpoint& b) { return a.step > b.step; });
  for (const Checkpoint& c : found) {
    const std::string fault = fault_of(c.folder, Look::kChecksums);
    if (fault.empty()) return c;
    note("passing over checkpoint " + c.folder.string() + ": " + fault);
  }
  return std::nullopt;
}

TrainerState load_checkpoint(Engine& engine, const Checkpoint& checkpoint) {
  load_weights(engine.context(), engine.params(), engine.weights(), checkpoint.folder);
  load_optimizer(engine, checkpoint.folder / "optimizer.safetensors");
  const fs::path path = checkpoint.folder / "trainer.json";
  return state_of(parse_json(read_file(path), path.string()), path.string());
}

}  // namespace flashgpt
