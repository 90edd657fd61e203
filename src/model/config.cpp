#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/hf_names.h"
#include "model/layout.h"

namespace flashgpt {

const char* name_of(Family f) {
  switch (f) {
    case Family::kGpt2: return "gpt2";
    case Family::kLlama: return "llama";
    case Family::kMpt: return "mpt";
  }
  return "?";
}

Family family_named(const std::string& name) {
  for (Family f : {Family::kGpt2, Family::kLlama, Family::kMpt})
    if (name == name_of(f)) return f;
  fail("model.family = ", name, ", expected gpt2, llama or mpt");
}

ModelConfig complete(ModelConfig c) {
  // Upper bounds far above any model, so that sizes of a damaged file cannot overflow a product.
  auto within = [](const char* field, std::int64_t value, std::int64_t most) {
    require(value > 0 && value <= most, "model.", field, " = ", value, ", expected a positive number up to ", most);
  };
  constexpr std::int64_t kMost = 1 << 20;
  within("layers", c.layers, 1 << 12);
  within("width", c.width, kMost);
  within("heads", c.heads, 1 << 12);
  within("vocab_size", c.vocab_size, 1 << 28);
  within("context_len", c.context_len, std::int64_t{1} << 31);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) {
    require(c.width % c.heads == 0, "model.width = ", c.width, " is not a multiple of model.heads = ", c.heads, "; set model.head_dim");
    c.head_dim = c.width / c.heads;
  }
  require(c.kv_heads > 0 && c.heads % c.kv_heads == 0, "model.kv_heads = ", c.kv_heads, ", expected a divisor of model.heads = ", c.heads);
  within("head_dim", c.head_dim, 1 << 12);
  if (c.mlp_hidden == 0) c.mlp_hidden = c.family == Family::kLlama ? (c.width * 8 / 3 + 63) / 64 * 64 : 4 * c.width;
  within("mlp_hidden", c.mlp_hidden, 4 * kMost);
  if (c.norm_eps == 0) c.norm_eps = 1e-5;
  require(c.norm_eps > 0 && c.norm_eps < 1, "model.norm_eps = ", c.norm_eps, ", expected a small positive number");
  if (c.tie_embeddings < 0) c.tie_embeddings = c.family == Family::kLlama ? 0 : 1;
  if (c.family == Family::kLlama) {
    require(c.head_dim % 2 == 0, "model.head_dim = ", c.head_dim, ", expected an even number for RoPE");
    require(c.rope_theta > 0 && std::isfinite(c.rope_theta), "model.rope_theta = ", c.rope_theta, ", expected a positive number");
    require(c.rope_factor >= 1 && std::isfinite(c.rope_factor), "model.rope_factor = ", c.rope_factor, ", expected 1 or more");
    require(c.rope_scaling != RopeScaling::kLlama3 ||
                (c.rope_low_freq > 0 && c.rope_high_freq > c.rope_low_freq && std::isfinite(c.rope_high_freq)),
            "model.rope_low_freq = ", c.rope_low_freq, ", rope_high_freq = ", c.rope_high_freq, ", expected 0 < low < high");
    within("rope_original_context", c.rope_original_context, std::int64_t{1} << 31);
    require(c.window >= 0, "model.window = ", c.window, ", expected 0 or more");
  } else {
    auto only_llama = [&](const char* field, bool given) {
      require(!given, "model.", field, ": the ", name_of(c.family), " family has none");
    };
    only_llama("rope_scaling", c.rope_scaling != RopeScaling::kNone);
    only_llama("qkv_bias", c.qkv_bias);
    only_llama("qk_norm", c.qk_norm);
    only_llama("window", c.window != 0);
  }
  return c;
}

std::vector<float> rope_frequencies(const ModelConfig& c) {
  std::vector<float> freq(static_cast<std::size_t>(c.head_dim / 2));
  for (std::size_t j = 0; j < freq.size(); ++j) {
    double f = std::pow(c.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(c.head_dim));
    if (c.rope_scaling == RopeScaling::kLinear) f /= c.rope_factor;
    if (c.rope_scaling == RopeScaling::kLlama3) {
      const double waves = static_cast<double>(c.rope_original_context) * f / (2 * std::numbers::pi);  // in the original context
      const double blend = std::clamp((waves - c.rope_low_freq) / (c.rope_high_freq - c.rope_low_freq), 0.0, 1.0);
      f = (1 - blend) * f / c.rope_factor + blend * f;
    }
    freq[j] = static_cast<float>(f);
  }
  return freq;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> list = {
      {"gpt-10m", {.family = Family::kLlama, .layers = 6, .width = 384, .heads = 6, .vocab_size = 257, .context_len = 256}},
      {"gpt2-124m", {.layers = 12, .width = 768, .heads = 12}},
      {"gpt2-350m", {.layers = 24, .width = 1024, .heads = 16}},
      {"gpt-1.3b", {.layers = 24, .width = 2048, .heads = 16, .context_len = 2048}},
      {"gpt-6.7b", {.layers = 32, .width = 4096, .heads = 32, .context_len = 4096}},
      {"gpt-13b", {.layers = 40, .width = 5120, .heads = 40, .context_len = 8192}},
      {"gpt-20b", {.layers = 44, .width = 6144, .heads = 64, .head_dim = 96, .context_len = 8192}},
  };
  return list;
}

ModelConfig preset_named(const std::string& name) {
  std::string known;
  for (const Preset& p : presets()) {
    const std::string full = p.name;
    if (name == full || name == full.substr(full.find('-') + 1)) return p.config;
    known += (known.empty() ? "" : ", ") + full;
  }
  fail("model.preset = ", name, ", expected one of ", known);
}

ParamList parameters(const ModelConfig& c) {
  ParamList list;
  auto add = [&](const std::string& prefix, const char* name, Shape shape, Init init, int group) {
    list.push_back({.name = prefix + name,
                    .shape = shape,
                    .init = init,
                    .decay = shape.rank >= 2,
                    .group = group,
                    .hf = hf_names(c, name, group - 1)});
  };
  OuterParams outer;
  for_each_outer(c, outer, [&](const char* name, Tensor&, Shape shape, Init init) { add("", name, shape, init, 0); });
  for (int l = 0; l < c.layers; ++l) {
    BlockParams block;
    for_each_block(c, block,
                   [&](const char* name, Tensor&, Shape shape, Init init) { add(cat("blocks.", l, "."), name, shape, init, 1 + l); });
  }
  return list;
}

}  // namespace flashgpt
