// config.json and generation_config.json of a Hugging Face checkpoint.
#pragma once
#include <string>

#include "model/config.h"

namespace flashgpt {

// What `transformers` needs to load the model: architectures, model_type and sizes under the family's own names. end_of_text: token id, or
// -1.
std::string hf_config_json(const ModelConfig& c, std::int64_t end_of_text);
std::string hf_generation_config_json(std::int64_t end_of_text);

// The model that a config.json describes; `what` names the file in errors. Error for a family, or a setting of one, that this program does
// not have.
ModelConfig model_from_hf_config(const std::string& text, const std::string& what);

}  // namespace flashgpt
