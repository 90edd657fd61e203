// A model as a Hugging Face folder: config.json, generation_config.json, model.safetensors. The tokenizer's files are their owner's to
// write.
#pragma once
#include <filesystem>

#include "model/config.h"

namespace flashgpt {

// Every file is written beside its place and renamed. Weights are fp32.
void save_model(Context& ctx, const ModelConfig& config, const ParamList& params, const ParamTensors& weights, std::int64_t end_of_text,
                const std::filesystem::path& folder);

ModelConfig load_model_config(const std::filesystem::path& folder);

// Fills the weights; each tensor of the model must be there with the right shape, and no other (a tied head may be repeated).
void load_weights(Context& ctx, const ParamList& params, const ParamTensors& weights, const std::filesystem::path& folder);

}  // namespace flashgpt
