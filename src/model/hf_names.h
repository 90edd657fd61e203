#pragma once
#include "model/config.h"

namespace flashgpt {

// The Hugging Face tensors that hold a parameter, by its name without the block ("qkv.w") and its layer.
std::vector<HfTensor> hf_names(const ModelConfig& c, const std::string& name, int layer);

}  // namespace flashgpt
