// A model as a Hugging Face folder: config.json, generation_config.json and the weights, in model.safetensors or, above a size, in shards
// (io/safetensors_shards.h). The tokenizer's files are their owner's to write.
#pragma once
#include <filesystem>

#include "model/config.h"

namespace flashgpt {

struct SaveOptions {
  std::int64_t end_of_text = -1;                  // token id; -1: the tokenizer has none
  std::uint64_t max_shard_bytes = 5'000'000'000;  // of a file of weights; above it there are several
};

// Every file is written beside its place and renamed. Weights are fp32. Error when no format of the family can say what the model is.
void save_model(Context& ctx, const ModelConfig& config, const ParamList& params, const ParamTensors& weights, const SaveOptions& options,
                const std::filesystem::path& folder);

ModelConfig load_model_config(const std::filesystem::path& folder);

// Fills the weights from bf16, fp16, fp32 or fp64 files. Each tensor of the model must be there, with the right shape and finite numbers,
// and no other but what older releases of transformers wrote beside the weights (a tied head once more, masks, RoPE's frequencies). Names
// may lack the base model's prefix ("transformer.", "model."). An Error names file and tensor.
void load_weights(Context& ctx, const ParamList& params, const ParamTensors& weights, const std::filesystem::path& folder);

}  // namespace flashgpt
