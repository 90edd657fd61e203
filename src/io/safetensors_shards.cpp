#include "io/safetensors_shards.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/json.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// "model-00002-of-00007.safetensors"
std::string shard_name(std::size_t index, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

bool is_shard_name(const std::string& name) { return name.starts_with("model-") && name.ends_with(".safetensors"); }

float from_bf16(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

float from_f16(std::uint16_t x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000) << 16, exponent = (x >> 10) & 31, fraction = x & 1023;
  if (exponent == 0) {  // zero, or a number below the normal ones: fraction * 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -size : size;
  }
  return std::bit_cast<float>(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13);
}

template <class Stored, class Convert> void convert(const StoredTensor& t, float* to, Convert f) {
  for (std::size_t i = 0; i < t.bytes.size() / sizeof(Stored); ++i) {
    Stored x;  // the file may not align it
    std::memcpy(&x, t.bytes.data() + i * sizeof x, sizeof x);
    to[i] = f(x);
  }
}

}  // namespace

ShardedReader::ShardedReader(const fs::path& folder) {
  const fs::path single = folder / kSingle, index = folder / kIndex;
  if (exists(single)) {
    path_ = single.string();
    files_.push_back(std::make_unique<SafetensorsFile>(single));
    file_names_.push_back(path_);
    for (const StoredTensor& t : files_[0]->tensors()) file_of_[t.name] = 0;
    return;
  }
  require(exists(index), folder.string(), ": neither ", kSingle, " nor ", kIndex, " is there",
          exists(folder / "pytorch_model.bin") || exists(folder / "pytorch_model.bin.index.json")
              ? "; pytorch_model.bin is not read: save the model again with safe_serialization=True"
              : "");
  path_ = index.string();
  const Json json = parse_json(read_file(index), path_);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(), path_, ": no object \"weight_map\"");
  std::map<std::string, std::size_t> known;
  for (const auto& [name, value] : json["weight_map"].items()) {
    require(value.is_string(), path_, ": weight_map: ", name, " is ", compact_json(value), ", expected a file's name");
    const std::string file = value.get<std::string>();
    require(!file.empty() && file != "." && file != ".." && file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos, path_,
            ": weight_map: ", name, " is in ", compact_json(value), ", expected the name of a file of the same folder");
    const auto [at, is_new] = known.try_emplace(file, files_.size());
    if (is_new) {
      files_.push_back(std::make_unique<SafetensorsFile>(folder / file));
      file_names_.push_back((folder / file).string());
    }
    require(files_[at->second]->find(name) != nullptr, path_, ": tensor ", name, " is not in ", file);
    file_of_[name] = at->second;
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const StoredTensor& t : files_[i]->tensors()) {
      const auto at = file_of_.find(t.name);
      require(at != file_of_.end(), file_names_[i], ": tensor ", t.name, " is not in the index");
      require(at->second == i, file_names_[i], ": tensor ", t.name, " is in ", file_names_[at->second], " too");
    }
}

std::vector<std::string> ShardedReader::names() const {
  std::vector<std::string> list;
  for (const auto& [name, file] : file_of_) list.push_back(name);
  return list;
}

const StoredTensor* ShardedReader::find(std::string_view name) const {
  const auto at = file_of_.find(name);
  return at == file_of_.end() ? nullptr : files_[at->second]->find(name);
}

std::string ShardedReader::where(std::string_view name) const {
  const auto at = file_of_.find(name);
  return cat(at == file_of_.end() ? path_ : file_names_[at->second], ": tensor ", name);
}

void read_floats(const StoredTensor& t, const std::string& where, float* to) {
  if (t.dtype == Dtype::kF32)
    std::copy_n(t.bytes.data(), t.bytes.size(), reinterpret_cast<std::byte*>(to));  // of no elements too, where `to` may be null
  else if (t.dtype == Dtype::kBF16)
    convert<std::uint16_t>(t, to, from_bf16);
  else if (t.dtype == Dtype::kF16)
    convert<std::uint16_t>(t, to, from_f16);
  else if (t.dtype == Dtype::kF64)
    convert<double>(t, to, [](double x) { return static_cast<float>(x); });
  else
    fail(where, " is ", t.type, ", expected F32, BF16, F16 or F64");
  const std::int64_t n = t.shape.numel();
  for (std::int64_t i = 0; i < n; ++i) require(std::isfinite(to[i]), where, ": element ", i, " is ", to[i], ", expected a finite number");
}

ShardedWriter::ShardedWriter(const fs::path& folder, const std::vector<TensorSpec>& tensors, std::uint64_t max_bytes) : folder_(folder) {
  std::vector<std::vector<TensorSpec>> shards(1);
  std::uint64_t size = 0;
  for (const TensorSpec& t : tensors) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(t.shape.numel()) * size_of(t.dtype);
    if (!shards.back().empty() && size + bytes > max_bytes) {
      shards.emplace_back();
      size = 0;
    }
    require(file_of_.try_emplace(t.name, shards.size() - 1).second, folder.string(), ": tensor name ", t.name, " is taken");
    shards.back().push_back(t);
    size += bytes;
    total_ += bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    file_names_.push_back(shards.size() == 1 ? kSingle : shard_name(i, shards.size()));
    files_.push_back(std::make_unique<SafetensorsWriter>(folder / file_names_.back(), shards[i]));
  }
}

void ShardedWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  const auto at = file_of_.find(name);
  require(at != file_of_.end(), folder_.string(), ": tensor ", name, " was not announced");
  files_[at->second]->add(name, bytes);
}

void ShardedWriter::commit() {
  for (const auto& file : files_) file->commit();
  const bool single = files_.size() == 1;
  if (!single) {
    Json index{{"metadata", {{"total_size", total_}}}, {"weight_map", Json::object()}};
    for (const auto& [name, file] : file_of_) index["weight_map"][name] = file_names_[file];
    write_atomic(folder_ / kIndex, pretty_json(index));
  }
  const std::set<std::string> ours(file_names_.begin(), file_names_.end());
  for (const fs::path& path : list_directory(folder_)) {
    const std::string name = path.filename().string();
    if ((name == kSingle && !single) || (name == kIndex && single) || (is_shard_name(name) && !ours.contains(name))) remove_tree(path);
  }
}

}  // namespace flashgpt
