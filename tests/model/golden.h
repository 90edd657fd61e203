// The models of tests/model/data, as `transformers` saved them, with what it computes (make_golden.py says how).
#pragma once
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "model/checkpoint.h"

namespace flashgpt::testing {

inline constexpr const char* kGoldenModels[] = {"gpt2", "llama3", "llama_linear", "mistral", "qwen2", "qwen3", "mpt"};

struct Golden {
  std::filesystem::path folder;
  ModelConfig model;
  std::int64_t rows = 0, length = 0;
  std::vector<std::int32_t> ids, lengths;  // [rows * length], [rows]
  std::vector<float> logits, losses;       // [rows * length * V], [rows * length]

  explicit Golden(const std::string& name)
      : folder(std::filesystem::path(FLASHGPT_GOLDEN_MODELS) / name), model(load_model_config(folder)) {
    const SafetensorsFile file(folder / "golden.safetensors");
    rows = file.at("input_ids").shape[0];
    length = file.at("input_ids").shape[1];
    auto read = [&](const char* key, auto& to) {
      const StoredTensor& t = file.at(key);
      to.resize(t.bytes.size() / sizeof(to[0]));
      std::memcpy(to.data(), t.bytes.data(), t.bytes.size());
    };
    read("input_ids", ids);
    read("lengths", lengths);
    read("logits", logits);
    read("losses", losses);
  }
};

}  // namespace flashgpt::testing
