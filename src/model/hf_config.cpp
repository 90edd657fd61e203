#include "model/hf_config.h"

#include <nlohmann/json.hpp>

#include "io/json.h"

namespace flashgpt {
namespace {

constexpr const char* kVersion = "5.0.0";  // the transformers release whose names these are
constexpr std::int64_t kMptRatio = 4;      // of the MLP's width; transformers does not look at expansion_ratio
constexpr const char *kSliding = "sliding_attention", *kFull = "full_attention";

// The formats of gpt2 and mpt know the number of heads and the width only.
void require_plain_heads(const ModelConfig& c) {
  require(c.head_dim * c.heads == c.width && c.kv_heads == c.heads, "model.heads = ", c.heads, ", kv_heads = ", c.kv_heads,
          ", head_dim = ", c.head_dim, ": the ", name_of(c.family), " format has heads x head_dim = width and kv_heads = heads only");
}

Json gpt2_config(const ModelConfig& c) {
  require_plain_heads(c);
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

Json rope_parameters(const ModelConfig& c) {
  switch (c.rope_scaling) {
    case RopeScaling::kLinear: return {{"rope_type", "linear"}, {"rope_theta", c.rope_theta}, {"factor", c.rope_factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"rope_theta", c.rope_theta},
              {"factor", c.rope_factor},
              {"low_freq_factor", c.rope_low_freq},
              {"high_freq_factor", c.rope_high_freq},
              {"original_max_position_embeddings", c.rope_original_context}};
    case RopeScaling::kNone: break;
  }
  return {{"rope_type", "default"}, {"rope_theta", c.rope_theta}};
}

Json llama_config(const ModelConfig& c) {
  require(!(c.qkv_bias && c.qk_norm), "model.qkv_bias with model.qk_norm: no Hugging Face format has both");
  const Json rope = rope_parameters(c);
  Json j = {{"vocab_size", c.vocab_size},
            {"max_position_embeddings", c.context_len},
            {"hidden_size", c.width},
            {"intermediate_size", c.mlp_hidden},
            {"num_hidden_layers", c.layers},
            {"num_attention_heads", c.heads},
            {"num_key_value_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"hidden_act", "silu"},
            {"rms_norm_eps", c.norm_eps},
            {"rope_theta", c.rope_theta},  // before release 5, which reads rope_parameters
            {"rope_scaling", c.rope_scaling == RopeScaling::kNone ? Json(nullptr) : rope},
            {"rope_parameters", rope},
            {"attention_dropout", 0.0},
            {"use_cache", true}};
  const Json window = c.window > 0 ? Json(c.window) : Json(nullptr);
  if (c.qkv_bias || c.qk_norm) {
    j["architectures"] = {c.qk_norm ? "Qwen3ForCausalLM" : "Qwen2ForCausalLM"};
    j["model_type"] = c.qk_norm ? "qwen3" : "qwen2";
    if (c.qk_norm) j["attention_bias"] = false;
    j["use_sliding_window"] = c.window > 0;
    j["sliding_window"] = window;
    j["max_window_layers"] = c.window > 0 ? 0 : c.layers;
    j["layer_types"] = std::vector<std::string>(static_cast<std::size_t>(c.layers), c.window > 0 ? kSliding : kFull);
  } else if (c.window > 0) {
    j["architectures"] = {"MistralForCausalLM"};
    j["model_type"] = "mistral";
    j["sliding_window"] = window;
  } else {
    j["architectures"] = {"LlamaForCausalLM"};
    j["model_type"] = "llama";
    j["attention_bias"] = j["mlp_bias"] = false;
  }
  return j;
}

Json mpt_config(const ModelConfig& c) {
  require(c.mlp_hidden == kMptRatio * c.width, "model.mlp_hidden = ", c.mlp_hidden, ": the mpt format has ", kMptRatio,
          " x width = ", kMptRatio * c.width, " only");
  require_plain_heads(c);
  return {{"architectures", {"MptForCausalLM"}},
          {"model_type", "mpt"},
          {"vocab_size", c.vocab_size},
          {"max_seq_len", c.context_len},
          {"d_model", c.width},
          {"n_layers", c.layers},
          {"n_heads", c.heads},
          {"expansion_ratio", kMptRatio},
          {"layer_norm_epsilon", c.norm_eps},
          {"no_bias", true},
          {"emb_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"norm_type", "low_precision_layernorm"},
          {"attn_config", {{"attn_type", "multihead_attention"}, {"alibi", true}, {"alibi_bias_max", 8}, {"attn_pdrop", 0}}},
          {"use_cache", true}};
}

// A config.json, read with the defaults of transformers. A value of the wrong kind is an error that names its key.
class Reader {
 public:
  Reader(Json json, std::string what) : json_(std::move(json)), what_(std::move(what)) {
    require(json_.is_object(), what_, ": ", compact_json(json_).substr(0, 40), ", expected an object");
  }
  const std::string& what() const { return what_; }

  // Not there and null are different: some defaults hold in the first case only.
  bool has(const char* key) const { return json_.contains(key); }
  const Json* given(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  template <class T> T get(const char* key, T otherwise) const {
    const Json* value = given(key);
    if (!value) return otherwise;
    if constexpr (std::is_same_v<T, bool>) {
      expect(key, *value, value->is_boolean(), "true or false");
    } else if constexpr (std::is_same_v<T, std::string>) {
      expect(key, *value, value->is_string(), "text");
    } else if constexpr (std::is_integral_v<T>) {
      expect(key, *value, value->is_number_integer() && (!value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX),
             "a whole number");
    } else {
      expect(key, *value, value->is_number(), "a number");
    }
    return value->get<T>();
  }
  std::int64_t needed(const char* key) const {
    const auto n = get<std::int64_t>(key, 0);
    require(n > 0, what_, ": ", key, " is missing or not positive");
    return n;
  }
  Reader object(const char* key) const {
    const Json* value = given(key);
    return Reader(value ? *value : Json::object(), cat(what_, ": ", key));
  }
  // A setting that this program has one value of.
  template <class T> void only(const char* key, T value) const {
    const T found = get<T>(key, value);
    require(found == value, what_, ": ", key, " = ", found, ", only ", value, " is supported");
  }
  void absent(const char* key) const {
    const Json* value = given(key);
    require(!value || *value == false, what_, ": ", key, " = ", value ? compact_json(*value).substr(0, 60) : "", " is not supported");
  }

 private:
  void expect(const char* key, const Json& value, bool right, const char* expected) const {
    require(right, what_, ": ", key, " = ", compact_json(value).substr(0, 60), ", expected ", expected);
  }
  Json json_;
  std::string what_;
};

void read_gpt2(const Reader& j, ModelConfig& c) {
  c.family = Family::kGpt2;
  c.context_len = j.needed("n_positions");
  c.width = j.needed("n_embd");
  c.layers = j.needed("n_layer");
  c.heads = j.needed("n_head");
  c.mlp_hidden = j.get<std::int64_t>("n_inner", 0);
  c.norm_eps = j.get("layer_norm_epsilon", 1e-5);
  const std::string act = j.get<std::string>("activation_function", "gelu_new");
  require(act == "gelu_new" || act == "gelu_pytorch_tanh", j.what(), ": activation_function = ", act, ", only gelu_new is supported");
  j.only("scale_attn_weights", true);
  j.absent("scale_attn_by_inverse_layer_idx");
  j.absent("add_cross_attention");
}

void read_rope(const Reader& j, ModelConfig& c) {
  // Release 5 of transformers has all in rope_parameters; before it there were rope_theta and rope_scaling.
  const Reader rope = j.object(j.given("rope_parameters") ? "rope_parameters" : "rope_scaling");
  c.rope_theta = rope.get("rope_theta", j.get("rope_theta", 10000.0));
  const std::string type = rope.get("rope_type", rope.get<std::string>("type", "default"));
  rope.only("partial_rotary_factor", 1.0);
  j.only("partial_rotary_factor", 1.0);
  if (type == "linear" || type == "llama3") {
    c.rope_scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kLlama3;
    require(rope.given("factor"), rope.what(), ": no factor for rope_type = ", type);
    c.rope_factor = rope.get("factor", 1.0);
  } else {
    require(type == "default", rope.what(), ": rope_type = ", type, ", only default, linear and llama3 are supported");
  }
  if (type == "llama3") {
    c.rope_low_freq = rope.get("low_freq_factor", 0.0);
    c.rope_high_freq = rope.get("high_freq_factor", 0.0);
    c.rope_original_context = rope.needed("original_max_position_embeddings");
  }
}

// A window that all layers have, or none: what Qwen says of its layers must come to that.
void read_qwen_window(const Reader& j, ModelConfig& c) {
  const bool on = j.get("use_sliding_window", false);
  std::int64_t sliding = 0;
  if (const Json* types = j.given("layer_types")) {
    require(types->is_array() && types->size() == static_cast<std::size_t>(c.layers), j.what(), ": layer_types, expected a list of ",
            c.layers);
    for (const Json& type : *types) {
      require(type == kSliding || type == kFull, j.what(), ": layer_types has ", compact_json(type), ", expected ", kFull, " or ",
              kSliding);
      sliding += type == kSliding;
    }
  } else if (on) {
    sliding = std::max<std::int64_t>(0, c.layers - j.get<std::int64_t>("max_window_layers", 28));
  }
  if (!on) sliding = 0;
  require(sliding == 0 || sliding == c.layers, j.what(), ": ", sliding, " of ", c.layers,
          " layers have a sliding window; only all or none are supported");
  if (sliding > 0) c.window = j.get<std::int64_t>("sliding_window", j.has("sliding_window") ? 0 : 4096);
}

void read_llama(const Reader& j, const std::string& type, ModelConfig& c) {
  c.family = Family::kLlama;
  c.context_len = j.needed("max_position_embeddings");
  c.width = j.needed("hidden_size");
  c.mlp_hidden = j.needed("intermediate_size");
  c.layers = j.needed("num_hidden_layers");
  c.heads = j.needed("num_attention_heads");
  const std::int64_t kv_heads = type == "llama" ? 0 : type == "mistral" ? 8 : 32;  // when the key is missing; null: as many as heads
  c.kv_heads = j.get<std::int64_t>("num_key_value_heads", j.has("num_key_value_heads") ? 0 : kv_heads);
  c.head_dim = j.get<std::int64_t>("head_dim", type == "qwen3" ? 128 : 0);
  c.norm_eps = j.get("rms_norm_eps", 1e-6);
  read_rope(j, c);
  j.only<std::string>("hidden_act", "silu");
  j.absent("attention_bias");
  j.absent("mlp_bias");
  c.qkv_bias = type == "qwen2";
  c.qk_norm = type == "qwen3";
  if (type == "mistral") c.window = j.get<std::int64_t>("sliding_window", j.has("sliding_window") ? 0 : 4096);
  if (type == "qwen2" || type == "qwen3") read_qwen_window(j, c);
}

void read_mpt(const Reader& j, ModelConfig& c) {
  c.family = Family::kMpt;
  c.context_len = j.needed("max_seq_len");
  c.width = j.needed("d_model");
  c.layers = j.needed("n_layers");
  c.heads = j.needed("n_heads");
  c.mlp_hidden = c.width <= INT64_MAX / kMptRatio ? kMptRatio * c.width : 0;
  c.norm_eps = j.get("layer_norm_epsilon", 1e-5);
  j.only("no_bias", true);
  j.absent("logit_scale");
  const Reader attention = j.object("attn_config");
  attention.only("alibi", true);
  attention.only<std::int64_t>("alibi_bias_max", 8);
  attention.only<std::string>("attn_type", "multihead_attention");
  for (const char* key : {"clip_qkv", "softmax_scale", "qk_ln", "prefix_lm"}) attention.absent(key);
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
  const Reader j(parse_json(text, what), what);
  ModelConfig c;
  const std::string type = j.get<std::string>("model_type", "");
  const bool llama = type == "llama" || type == "mistral" || type == "qwen2" || type == "qwen3";
  const Json* names = j.given("architectures");
  require(llama || type == "gpt2" || type == "mpt", what, ": model_type = '", type, "'",
          names ? ", architectures = " + compact_json(*names).substr(0, 200) : "", ", expected gpt2, llama, mistral, qwen2, qwen3 or mpt");
  c.vocab_size = j.needed("vocab_size");
  if (llama)
    read_llama(j, type, c);
  else if (type == "gpt2")
    read_gpt2(j, c);
  else
    read_mpt(j, c);
  c.tie_embeddings = j.get("tie_word_embeddings", c.family != Family::kLlama);
  j.absent("quantization_config");
  try {
    c = complete(c);
    hf_config_json(c, -1);  // what is read must be possible to write
    return c;
  } catch (const Error& e) {
    fail(what, ": ", e.what());
  }
}

}  // namespace flashgpt
