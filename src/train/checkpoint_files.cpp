#include "train/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "flashgpt/error.h"
#include "io/file.h"
#include "io/json.h"
#include "io/text.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kComplete = "COMPLETE";
constexpr std::int64_t kFormat = 1;

std::string checksum_of(const fs::path& file) {
  const MappedFile mapped(file);
  return hex_text(checksum64(mapped.bytes()));
}

// Values of an object by key, checked: a number that is none, negative, fractional or too large is an Error that names the key.
struct Reader {
  const Json& object;
  const std::string& what;

  const Json& at(const char* key) const {
    require(object.is_object() && object.contains(key), what, ": there is no ", key);
    return object[key];
  }
  std::uint64_t unsigned_whole(const char* key) const {
    const Json& v = at(key);
    require(v.is_number_integer() && (v.is_number_unsigned() || v.get<std::int64_t>() >= 0), what, ": ", key, " = ", compact_json(v),
            ", expected a whole number, 0 or more");
    return v.get<std::uint64_t>();
  }
  std::int64_t whole(const char* key) const {
    const std::uint64_t v = unsigned_whole(key);
    require(v <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()), what, ": ", key, " = ", v,
            ", expected less than 2^63");
    return static_cast<std::int64_t>(v);
  }
  double real(const char* key) const {
    const Json& v = at(key);
    require(v.is_number() && v.get<double>() >= 0 && std::isfinite(v.get<double>()), what, ": ", key, " = ", compact_json(v),
            ", expected a number, 0 or more");
    return v.get<double>();
  }
  std::string text(const char* key) const {
    const Json& v = at(key);
    require(v.is_string(), what, ": ", key, " = ", compact_json(v), ", expected text");
    return v.get<std::string>();
  }
  std::uint64_t hex_number(const char* key) const {
    const std::string digits = text(key);
    std::uint64_t v = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v, 16);
    require(error == std::errc() && end == digits.data() + digits.size() && !digits.empty(), what, ": ", key, " = ", digits,
            ", expected up to 16 hexadecimal digits");
    return v;
  }
};

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return "step_" + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

std::int64_t checkpoint_step(const std::string& name) {
  if (!name.starts_with("step_") || name.size() > 20) return -1;
  const std::string digits = name.substr(5);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(digits);
}

void write_trainer_state(const fs::path& path, const TrainerState& s) {
  write_atomic(path, pretty_json(Json{{"format", kFormat},
                                      {"step", s.step},
                                      {"updates", s.updates},
                                      {"skipped", s.skipped},
                                      {"skipped_in_row", s.skipped_in_row},
                                      {"position", s.position},
                                      {"tokens", s.tokens},
                                      {"seconds", s.seconds},
                                      {"data_checksum", hex_text(s.data_checksum)},
                                      {"seed", s.seed},
                                      {"context_len", s.context_len},
                                      {"blas", s.blas}}));
}

TrainerState read_trainer_state(const fs::path& path) {
  const std::string what = path.string();
  const Json json = parse_json(read_file(path), what);
  const Reader r{json, what};
  const std::int64_t format = r.whole("format");
  require(format == kFormat, what, ": format = ", format, ", this program reads ", kFormat);
  return {.step = r.whole("step"),
          .updates = r.whole("updates"),
          .skipped = r.whole("skipped"),
          .skipped_in_row = r.whole("skipped_in_row"),
          .position = r.whole("position"),
          .tokens = r.whole("tokens"),
          .seconds = r.real("seconds"),
          .data_checksum = r.hex_number("data_checksum"),
          .seed = r.unsigned_whole("seed"),
          .context_len = json.contains("context_len") ? r.whole("context_len") : 0,
          .blas = r.text("blas")};
}

void write_complete(const fs::path& folder) {
  Json complete = Json::object();
  for (const fs::path& file : list_directory(folder))
    complete[file.filename().string()] = {{"bytes", file_size(file)}, {"checksum", checksum_of(file)}};
  write_atomic(folder / kComplete, pretty_json(complete));
}

std::string checkpoint_fault(const fs::path& folder, Look look) {
  try {
    const fs::path list = folder / kComplete;
    if (!exists(list)) return "it was never finished";
    const Json complete = parse_json(read_file(list), list.string());
    if (!complete.is_object() || complete.empty()) return cat(kComplete, " is no list of files");
    for (const auto& [name, entry] : complete.items()) {
      if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
        return cat(kComplete, " names \"", name, "\", which is no file of the folder");
      const fs::path file = folder / name;
      const std::string what = cat(kComplete, ", ", name);
      const Reader r{entry, what};
      const std::uint64_t bytes = r.unsigned_whole("bytes");
      const std::string checksum = r.text("checksum");
      if (!exists(file)) return name + " is missing";
      if (const std::uint64_t size = file_size(file); size != bytes) return cat(name, " has ", size, " bytes, expected ", bytes);
      if (look == Look::kChecksums && checksum_of(file) != checksum) return name + " does not have the checksum it was written with";
    }
    return "";
  } catch (const std::exception& e) {  // of the file system too
    return e.what();
  }
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& run, const std::function<void(const std::string&)>& note) {
  const fs::path checkpoints = run / "checkpoints";
  std::vector<Checkpoint> found;
  if (!exists(checkpoints)) return std::nullopt;
  for (const fs::path& path : list_directory(checkpoints))
    if (const std::int64_t step = checkpoint_step(path.filename().string()); step >= 0) found.push_back({path, step});
  std::stable_sort(found.begin(), found.end(), [](const Checkpoint& a, const Checkpoint& b) { return a.step > b.step; });
  for (const Checkpoint& c : found) {
    const std::string fault = checkpoint_fault(c.folder, Look::kChecksums);
    if (fault.empty()) return c;
    note("passing over checkpoint " + c.folder.string() + ": " + fault);
  }
  return std::nullopt;
}

}  // namespace flashgpt
