// What a model is: its family and sizes. Defaults of a family are filled in by complete().
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "nn/block.h"

namespace flashgpt {

// gpt2: learned positions, LayerNorm, GELU (tanh), biases, tied head.
// llama: RoPE, RMSNorm, SwiGLU, no biases, grouped-query attention, untied head; with qkv_bias it is Qwen2, with qk_norm Qwen3, with a
// window
//   Mistral.
// mpt: ALiBi, LayerNorm without bias, GELU (exact), no biases, tied head.
enum class Family : std::uint8_t { kGpt2, kLlama, kMpt };

// How RoPE's frequencies are changed for contexts longer than a model was first trained on.
// linear: all are divided by the factor. llama3: those whose wave is longer than original_context / low_freq are, those shorter than
// original_context / high_freq are not, and between the two the factor is blended in.
enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3 };

struct ModelConfig {
  Family family = Family::kGpt2;
  std::int64_t layers = 12;
  std::int64_t width = 768;  // C
  std::int64_t heads = 12;
  std::int64_t kv_heads = 0;    // 0: heads
  std::int64_t head_dim = 0;    // 0: width / heads
  std::int64_t mlp_hidden = 0;  // 0: 4 width; llama: 8/3 width rounded up to a multiple of 64
  std::int64_t vocab_size = 50257;
  std::int64_t context_len = 1024;  // longest sequence; the rows of gpt2's position table
  double norm_eps = 0;              // 0: 1e-5
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 1;
  double rope_low_freq = 1, rope_high_freq = 4;  // llama3
  std::int64_t rope_original_context = 8192;     // llama3
  bool qkv_bias = false;                         // llama; gpt2 has all biases in any case
  bool qk_norm = false;                          // llama: RMSNorm of each head of q and k
  std::int64_t window = 0;                       // llama: keys that a query sees, itself included; 0: all before it
  int tie_embeddings = -1;                       // -1: the family's

  bool operator==(const ModelConfig&) const = default;
};

const char* name_of(Family f);
Family family_named(const std::string& name);  // Error naming the families when unknown

// Fills in what was left to the family and checks the sizes against each other; an Error names the field.
ModelConfig complete(ModelConfig c);

// RoPE's frequencies in turns of 1 radian a position: [head_dim / 2].
std::vector<float> rope_frequencies(const ModelConfig& c);

struct Preset {
  const char* name;
  ModelConfig config;
};
const std::vector<Preset>& presets();
ModelConfig preset_named(const std::string& name);  // "gpt2-124m" or the bare size "124m"

// Every parameter of the model, in the order of the checkpoint.
ParamList parameters(const ModelConfig& c);

}  // namespace flashgpt
