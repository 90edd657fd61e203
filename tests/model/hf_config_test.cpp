// config.json as other programs write it: what is understood, and what is refused by name.
#include "model/hf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "io/test_folder.h"

namespace flashgpt {
namespace {

std::string llama_text(const std::string& type, const std::string& more) {
  return cat(R"({"model_type": ")", type, R"(", "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,)",
             R"("num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64)", more.empty() ? "" : ", ", more, "}");
}
ModelConfig llama(const std::string& type, const std::string& more) { return model_from_hf_config(llama_text(type, more), "config.json"); }
void refuses(const std::string& type, const std::string& more, const std::string& part) {
  expect_error([&] { llama(type, more); }, part);
  expect_error([&] { llama(type, more); }, "config.json");
}

TEST(HfConfig, EveryVariantIsReadAsItWasWritten) {
  const ModelConfig plain{
      .family = Family::kLlama, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .vocab_size = 50, .context_len = 64};
  std::vector<ModelConfig> list(8, plain);
  list[1].rope_scaling = RopeScaling::kLinear;
  list[1].rope_factor = 2.5;
  list[2].rope_scaling = RopeScaling::kLlama3;
  list[2].rope_factor = 8;
  list[2].rope_low_freq = 2;
  list[2].rope_original_context = 32;
  list[3].window = 7;
  list[4].qkv_bias = true;
  list[5].qkv_bias = true;
  list[5].window = 9;
  list[6].qk_norm = true;
  list[6].head_dim = 10;
  list[7].qk_norm = true;
  list[7].window = 3;
  list[7].tie_embeddings = 1;
  for (const ModelConfig& c : list) EXPECT_EQ(model_from_hf_config(hf_config_json(c, 3), "c"), complete(c)) << hf_config_json(c, 3);
}

TEST(HfConfig, OlderReleasesOfTransformers) {
  ModelConfig c = llama("llama", R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
  EXPECT_EQ(c.rope_theta, 500000);
  EXPECT_EQ(c.rope_scaling, RopeScaling::kLlama3);
  EXPECT_EQ(c.rope_factor, 8);
  EXPECT_EQ(c.rope_original_context, 8192);
  c = llama("llama", R"("rope_scaling": {"type": "linear", "factor": 4})");
  EXPECT_EQ(c.rope_scaling, RopeScaling::kLinear);
  EXPECT_EQ(c.rope_factor, 4);
  EXPECT_EQ(llama("llama", R"("rope_scaling": null)").rope_scaling, RopeScaling::kNone);
}

TEST(HfConfig, DefaultsThatDependOnTheType) {
  EXPECT_EQ(llama("mistral", "").window, 4096);
  EXPECT_EQ(llama("mistral", R"("sliding_window": null)").window, 0);
  EXPECT_EQ(llama("llama", R"("sliding_window": 5)").window, 0);
  EXPECT_EQ(llama("qwen3", "").head_dim, 128);
  EXPECT_EQ(llama("qwen2", "").head_dim, 4);
  EXPECT_EQ(llama("llama", R"("head_dim": null)").head_dim, 4);
  EXPECT_EQ(llama("llama", "").norm_eps, 1e-6);
  EXPECT_EQ(llama("llama", "").tie_embeddings, 0);
}

TEST(HfConfig, WindowsOfQwen) {
  EXPECT_EQ(llama("qwen2", R"("use_sliding_window": false, "sliding_window": 5)").window, 0);
  EXPECT_EQ(llama("qwen2", R"("use_sliding_window": true, "sliding_window": 5, "max_window_layers": 0)").window, 5);
  EXPECT_EQ(llama("qwen2", R"("use_sliding_window": true, "sliding_window": 5, "max_window_layers": 28)").window, 0);
  EXPECT_EQ(llama("qwen3", R"("use_sliding_window": true, "sliding_window": 5, "layer_types": ["sliding_attention", "sliding_attention"])")
                .window,
            5);
  refuses("qwen2", R"("use_sliding_window": true, "sliding_window": 5, "max_window_layers": 1)", "1 of 2 layers have a sliding window");
  refuses("qwen3", R"("use_sliding_window": true, "layer_types": ["chunked", "full_attention"])", "chunked");
}

TEST(HfConfig, WhatIsNotThereIsRefusedByName) {
  expect_error([] { model_from_hf_config(R"({"model_type": "gemma3", "architectures": ["Gemma3ForCausalLM"]})", "c"); },
               "Gemma3ForCausalLM");
  expect_error([] { model_from_hf_config(R"({"architectures": ["OPTForCausalLM"]})", "c"); }, "OPTForCausalLM");
  refuses("llama", R"("rope_parameters": {"rope_type": "yarn", "factor": 4.0})", "rope_type = yarn");
  refuses("llama", R"("rope_parameters": {"rope_type": "linear"})", "no factor");
  refuses("llama", R"("rope_parameters": {"rope_type": "llama3", "factor": 8.0})", "original_max_position_embeddings");
  refuses("llama", R"("attention_bias": true)", "attention_bias");
  refuses("llama", R"("mlp_bias": true)", "mlp_bias");
  refuses("llama", R"("hidden_act": "gelu")", "hidden_act = gelu");
  refuses("llama", R"("partial_rotary_factor": 0.5)", "partial_rotary_factor");
  refuses("llama", R"("quantization_config": {"bits": 4})", "quantization_config");
  auto mpt = [](const std::string& more) {
    return cat(R"({"model_type": "mpt", "vocab_size": 50, "d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, )", more, "}");
  };
  EXPECT_EQ(model_from_hf_config(mpt(R"("attn_config": {"alibi": true, "clip_qkv": null, "qk_ln": false})"), "c").mlp_hidden, 64);
  expect_error([&] { model_from_hf_config(mpt(R"("attn_config": {"clip_qkv": 6})"), "c"); }, "clip_qkv = 6");
  expect_error([&] { model_from_hf_config(mpt(R"("attn_config": {"alibi": false})"), "c"); }, "alibi");
  expect_error([&] { model_from_hf_config(mpt(R"("logit_scale": "inv_sqrt_d_model")"), "c"); }, "logit_scale");
}

TEST(HfConfig, HostileValuesNameTheKey) {
  for (const char* value : {"-1", "0", "1.5", "1e300", "\"many\"", "[]", "null", "18446744073709551615", "9223372036854775807"}) {
    SCOPED_TRACE(value);
    const std::string text =
        cat(R"({"model_type": "gpt2", "vocab_size": 5, "n_positions": 8, "n_embd": 8, "n_head": 2, "n_layer": )", value, "}");
    expect_error([&] { model_from_hf_config(text, "c"); }, "layer");
  }
  refuses("llama", R"("head_dim": 4000000000)", "head_dim");
  refuses("llama", R"("head_dim": -2)", "head_dim");
  refuses("llama", R"("head_dim": 5)", "head_dim = 5");
  refuses("llama", R"("rms_norm_eps": -1.0)", "norm_eps");
  refuses("llama", R"("rope_theta": 0)", "rope_theta");
  refuses("llama", R"("rope_parameters": [1])", "rope_parameters");
  refuses("llama", R"("tie_word_embeddings": 1)", "tie_word_embeddings");
  refuses("mistral", R"("sliding_window": -3)", "window");
}

// The frequencies of Llama 3.1 by its own formula.
TEST(RopeFrequencies, Llama3) {
  ModelConfig c{.family = Family::kLlama, .layers = 1, .width = 128, .heads = 1, .rope_theta = 500000};
  c = complete(c);
  const std::vector<float> plain = rope_frequencies(c);
  c.rope_scaling = RopeScaling::kLlama3;
  c.rope_factor = 8;
  const std::vector<float> scaled = rope_frequencies(c);
  int kept = 0, divided = 0;
  for (std::size_t j = 0; j < plain.size(); ++j) {
    const double wave = 2 * std::numbers::pi / plain[j];
    double want = plain[j];
    if (wave > 8192.0 / 1) {
      want /= 8;
      ++divided;
    } else if (wave >= 8192.0 / 4) {
      const double smooth = (8192.0 / wave - 1) / (4 - 1);
      want = (1 - smooth) * want / 8 + smooth * want;
    } else {
      ++kept;
    }
    EXPECT_NEAR(scaled[j], want, 1e-6 * want) << j;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(divided, 20);
  c.rope_scaling = RopeScaling::kLinear;
  for (std::size_t j = 0; j < plain.size(); ++j) EXPECT_NEAR(rope_frequencies(c)[j], plain[j] / 8, 1e-6 * plain[j]);
}

TEST(ModelConfig, FieldsOfOtherFamiliesAreErrors) {
  ModelConfig c{.window = 5};
  expect_error([&] { complete(c); }, "model.window: the gpt2 family has none");
  c = {.family = Family::kMpt, .qk_norm = true};
  expect_error([&] { complete(c); }, "model.qk_norm");
  c = {.family = Family::kLlama, .qkv_bias = true, .qk_norm = true};
  expect_error([&] { hf_config_json(c, -1); }, "no Hugging Face format has both");
  c = {.family = Family::kMpt, .mlp_hidden = 1536};
  expect_error([&] { hf_config_json(c, -1); }, "model.mlp_hidden = 1536");
}

}  // namespace
}  // namespace flashgpt
