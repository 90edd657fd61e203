#include "model/hf_config.h"

#include <nlohmann/json.hpp>

#include "io/json.h"

namespace flashgpt {
namespace {

constexpr const char* kVersion = "5.0.0";  // the transformers release whose names these are

Json gpt2_config(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", c.vocab_size},
          {"n_positions", c.context_len},
          {"n_ctx", c.context_len},
          {"n_embd", c.width},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_inner", c.mlp_hidden},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", c.norm_eps},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"scale_attn_weights", true},
          {"use_cache", true}};
}

Json llama_config(const ModelConfig& c) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.context_len},
          {"hidden_size", c.width},
          {"intermediate_size", c.mlp_hidden},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"hidden_act", "silu"},
          {"rms_norm_eps", c.norm_eps},
          {"rope_theta", c.rope_theta},
          {"rope_scaling", nullptr},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", c.rope_theta}}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"attention_dropout", 0.0},
          {"use_cache", true}};
}

Json mpt_config(const ModelConfig& c) {
  const bool whole = c.mlp_hidden % c.width == 0;
  require(whole, "model.mlp_hidden = ", c.mlp_hidden, ": the mpt format has a whole ratio to width = ", c.width, " only");
  require(c.head_dim * c.heads == c.width && c.kv_heads == c.heads, "model.heads = ", c.heads, ", kv_heads = ", c.kv_heads,
          ", head_dim = ", c.head_dim, ": the mpt format has heads x head_dim = width and kv_heads = heads only");
  return {{"architectures", {"MptForCausalLM"}},
          {"model_type", "mpt"},
          {"vocab_size", c.vocab_size},
          {"max_seq_len", c.context_len},
          {"d_model", c.width},
          {"n_layers", c.layers},
          {"n_heads", c.heads},
          {"expansion_ratio", c.mlp_hidden / c.width},
          {"layer_norm_epsilon", c.norm_eps},
          {"no_bias", true},
          {"emb_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"norm_type", "low_precision_layernorm"},
          {"attn_config", {{"attn_type", "multihead_attention"}, {"alibi", true}, {"alibi_bias_max", 8}, {"attn_pdrop", 0.0}}},
          {"use_cache", true}};
}

template <class T> T get(const Json& j, const char* key, T otherwise) {
  const auto at = j.find(key);
  return at == j.end() || at->is_null() ? otherwise : at->template get<T>();
}

std::int64_t needed(const Json& j, const char* key, const std::string& what) {
  const std::int64_t n = get<std::int64_t>(j, key, 0);
  require(n > 0, what, ": ", key, " is missing or not positive");
  return n;
}

// A setting that this program has one value of.
template <class T> void only(const Json& j, const char* key, T value, const std::string& what) {
  const T found = get<T>(j, key, value);
  require(found == value, what, ": ", key, " = ", found, ", only ", value, " is supported");
}

}  // namespace

std::string hf_config_json(const ModelConfig& config, std::int64_t end_of_text) {
  const ModelConfig c = complete(config);
  Json j;
  switch (c.family) {
    case Family::kGpt2: j = gpt2_config(c); break;
    case Family::kLlama: j = llama_config(c); break;
    case Family::kMpt: j = mpt_config(c); break;
  }
  j["tie_word_embeddings"] = c.tie_embeddings != 0;
  j["initializer_range"] = 0.02;
  j["dtype"] = j["torch_dtype"] = "float32";
  j["transformers_version"] = kVersion;
  if (end_of_text >= 0) j["bos_token_id"] = j["eos_token_id"] = end_of_text;
  return pretty_json(j);
}

std::string hf_generation_config_json(std::int64_t end_of_text) {
  Json j = {{"do_sample", true}, {"temperature", 0.8}, {"transformers_version", kVersion}};
  if (end_of_text >= 0) j["bos_token_id"] = j["eos_token_id"] = end_of_text;
  return pretty_json(j);
}

ModelConfig model_from_hf_config(const std::string& text, const std::string& what) {
  const Json j = parse_json(text, what);
  ModelConfig c;
  try {
    const std::string type = get<std::string>(j, "model_type", "");
    c.vocab_size = needed(j, "vocab_size", what);
    if (type == "gpt2") {
      c.family = Family::kGpt2;
      c.context_len = needed(j, "n_positions", what);
      c.width = needed(j, "n_embd", what);
      c.layers = needed(j, "n_layer", what);
      c.heads = needed(j, "n_head", what);
      c.mlp_hidden = get<std::int64_t>(j, "n_inner", 0);
      c.norm_eps = get<double>(j, "layer_norm_epsilon", 1e-5);
      only<std::string>(j, "activation_function", "gelu_new", what);
    } else if (type == "llama") {
      c.family = Family::kLlama;
      c.context_len = needed(j, "max_position_embeddings", what);
      c.width = needed(j, "hidden_size", what);
      c.mlp_hidden = needed(j, "intermediate_size", what);
      c.layers = needed(j, "num_hidden_layers", what);
      c.heads = needed(j, "num_attention_heads", what);
      c.kv_heads = get<std::int64_t>(j, "num_key_value_heads", 0);
      c.head_dim = get<std::int64_t>(j, "head_dim", 0);
      c.norm_eps = get<double>(j, "rms_norm_eps", 1e-6);
      c.rope_theta = get<double>(get<Json>(j, "rope_parameters", Json::object()), "rope_theta", get<double>(j, "rope_theta", 10000.0));
      const Json scaling = get<Json>(j, "rope_scaling", get<Json>(j, "rope_parameters", Json::object()));
      const std::string rope = get<std::string>(scaling, "rope_type", get<std::string>(scaling, "type", "default"));
      require(rope == "default", what, ": rope_type = ", rope, ", only default is supported");
      only<std::string>(j, "hidden_act", "silu", what);
      only<bool>(j, "attention_bias", false, what);
      only<bool>(j, "mlp_bias", false, what);
    } else if (type == "mpt") {
      c.family = Family::kMpt;
      c.context_len = needed(j, "max_seq_len", what);
      c.width = needed(j, "d_model", what);
      c.layers = needed(j, "n_layers", what);
      c.heads = needed(j, "n_heads", what);
      c.mlp_hidden = c.width * get<std::int64_t>(j, "expansion_ratio", 4);
      c.norm_eps = get<double>(j, "layer_norm_epsilon", 1e-5);
      only<bool>(j, "no_bias", true, what);
      only<bool>(get<Json>(j, "attn_config", Json::object()), "alibi", true, what);
    } else {
      fail(what, ": model_type = '", type, "', expected gpt2, llama or mpt");
    }
    c.tie_embeddings = get<bool>(j, "tie_word_embeddings", c.family != Family::kLlama);
  } catch (const Json::exception& e) {
    fail(what, ": ", e.what());
  }
  return complete(c);
}

}  // namespace flashgpt
