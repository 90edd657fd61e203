#include "model/checkpoint.h"

#include <set>

#include "core/copy.h"
#include "io/file.h"
#include "io/safetensors_shards.h"
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

// The name in the files of a tensor of the model: some checkpoints (gpt2's own) leave out the prefix of the base model.
std::string name_in(const ShardedReader& files, const std::string& name) {
  if (files.find(name)) return name;
  for (const std::string prefix : {"transformer.", "model."})
    if (name.starts_with(prefix) && files.find(name.substr(prefix.size()))) return name.substr(prefix.size());
  fail(files.path(), ": no tensor ", name);
}

bool is_no_weight(const std::string& name) {
  return name == "lm_head.weight" || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

void save_model(Context& ctx, const ModelConfig& config, const ParamList& params, const ParamTensors& weights, const SaveOptions& options,
                const std::filesystem::path& folder) {
  const std::string config_text = hf_config_json(config, options.end_of_text);  // throws before anything is written
  std::vector<TensorSpec> infos;
  for (const ParamSpec& p : params)
    for (const HfTensor& t : p.hf) infos.push_back({.name = t.name, .dtype = Dtype::kF32, .shape = piece_of(p, t).shape});
  ShardedWriter out(folder, infos, options.max_shard_bytes);
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
  write_atomic(folder / "config.json", config_text);
  write_atomic(folder / "generation_config.json", hf_generation_config_json(options.end_of_text));
}

ModelConfig load_model_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  return model_from_hf_config(read_file(path), path.string());
}

void load_weights(Context& ctx, const ParamList& params, const ParamTensors& weights, const std::filesystem::path& folder) {
  const ShardedReader files(folder);
  std::set<std::string> left;
  for (std::string& name : files.names()) left.insert(std::move(name));
  std::vector<float> host, turned;
  for (std::size_t i = 0; i < params.size(); ++i) {
    host.resize(static_cast<std::size_t>(params[i].shape.numel()));
    for (const HfTensor& t : params[i].hf) {
      const Piece s = piece_of(params[i], t);
      const std::string name = name_in(files, t.name), where = files.where(name);
      const StoredTensor& found = *files.find(name);
      require(found.shape == s.shape, where, " has shape ", found.shape.str(), ", expected ", s.shape.str());
      float* to = host.data() + s.first * s.columns;
      if (t.transpose) {
        turned.resize(static_cast<std::size_t>(s.rows * s.columns));
        read_floats(found, where, turned.data());
        transpose(turned.data(), s.columns, s.rows, to);
      } else {
        read_floats(found, where, to);
      }
      left.erase(name);
    }
    upload(ctx, weights.tensors[i], host.data());
  }
  std::erase_if(left, is_no_weight);
  require(left.empty(), left.empty() ? "" : files.where(*left.begin()), " does not belong to the model");
}

}  // namespace flashgpt
