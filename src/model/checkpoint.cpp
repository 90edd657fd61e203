#include "model/checkpoint.h"

#include <cstring>
#include <set>

#include "core/copy.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "model/hf_config.h"

namespace flashgpt {
namespace {

// The part of a parameter that one Hugging Face tensor holds: rows [first, first + rows) of columns each; a vector has one column.
struct Piece {
  std::int64_t first = 0, rows = 0, columns = 1;
  Shape shape;  // as in the file
};

Piece piece_of(const ParamSpec& p, const HfTensor& t) {
  Piece s{.first = t.first_row, .rows = t.rows ? t.rows : p.shape[0], .columns = p.shape.rank == 2 ? p.shape[1] : 1};
  if (p.shape.rank == 1)
    s.shape = {s.rows};
  else if (t.transpose)
    s.shape = {s.columns, s.rows};
  else
    s.shape = {s.rows, s.columns};
  return s;
}

void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}

}  // namespace

void save_model(Context& ctx, const ModelConfig& config, const ParamList& params, const ParamTensors& weights, std::int64_t end_of_text,
                const std::filesystem::path& folder) {
  std::vector<TensorSpec> infos;
  for (const ParamSpec& p : params)
    for (const HfTensor& t : p.hf) infos.push_back({.name = t.name, .dtype = Dtype::kF32, .shape = piece_of(p, t).shape});
  SafetensorsWriter out(folder / "model.safetensors", infos);
  std::vector<float> host, turned;
  for (std::size_t i = 0; i < params.size(); ++i) {
    host.resize(static_cast<std::size_t>(params[i].shape.numel()));
    download(ctx, weights.tensors[i], host.data());
    for (const HfTensor& t : params[i].hf) {
      const Piece s = piece_of(params[i], t);
      const float* data = host.data() + s.first * s.columns;
      if (t.transpose) {
        turned.resize(static_cast<std::size_t>(s.rows * s.columns));
        transpose(data, s.rows, s.columns, turned.data());
        data = turned.data();
      }
      out.add(t.name, {reinterpret_cast<const std::byte*>(data), static_cast<std::size_t>(s.rows * s.columns) * sizeof(float)});
    }
  }
  out.commit();
  write_atomic(folder / "config.json", hf_config_json(config, end_of_text));
  write_atomic(folder / "generation_config.json", hf_generation_config_json(end_of_text));
}

ModelConfig load_model_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  return model_from_hf_config(read_file(path), path.string());
}

void load_weights(Context& ctx, const ParamList& params, const ParamTensors& weights, const std::filesystem::path& folder) {
  const auto path = folder / "model.safetensors";
  const SafetensorsFile file(path);
  std::set<std::string> left;
  for (const auto& entry : file.tensors()) left.insert(entry.name);
  std::vector<float> host;
  for (std::size_t i = 0; i < params.size(); ++i) {
    host.resize(static_cast<std::size_t>(params[i].shape.numel()));
    for (const HfTensor& t : params[i].hf) {
      const Piece s = piece_of(params[i], t);
      const StoredTensor& found = file.at(t.name, s.shape, Dtype::kF32);
      float* to = host.data() + s.first * s.columns;
      if (t.transpose) {
        std::vector<float> turned(found.bytes.size() / sizeof(float));
        std::memcpy(turned.data(), found.bytes.data(), found.bytes.size());
        transpose(turned.data(), s.columns, s.rows, to);
      } else {
        std::memcpy(to, found.bytes.data(), found.bytes.size());
      }
      left.erase(t.name);
    }
    upload(ctx, weights.tensors[i], host.data());
  }
  left.erase("lm_head.weight");  // a tied head that was written out
  require(left.empty(), path.string(), ": tensor ", left.empty() ? "" : *left.begin(), " does not belong to the model");
}

}  // namespace flashgpt
