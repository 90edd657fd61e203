// Where each parameter stands in a Hugging Face checkpoint of its family: GPT2LMHeadModel, LlamaForCausalLM (Mistral and Qwen likewise),
// MptForCausalLM.
#include "model/hf_names.h"

namespace flashgpt {
namespace {

using Names = std::vector<HfTensor>;

Names gpt2(const std::string& name, const std::string& layer) {
  const std::string h = "transformer.h." + layer + ".";
  auto conv1d = [&](const char* stem) { return Names{{.name = h + stem + ".weight", .transpose = true}}; };
  if (name == "embedding") return {{.name = "transformer.wte.weight"}};
  if (name == "positions") return {{.name = "transformer.wpe.weight"}};
  if (name == "final_norm.w") return {{.name = "transformer.ln_f.weight"}};
  if (name == "final_norm.b") return {{.name = "transformer.ln_f.bias"}};
  if (name == "head") return {{.name = "lm_head.weight"}};
  if (name == "norm1.w") return {{.name = h + "ln_1.weight"}};
  if (name == "norm1.b") return {{.name = h + "ln_1.bias"}};
  if (name == "norm2.w") return {{.name = h + "ln_2.weight"}};
  if (name == "norm2.b") return {{.name = h + "ln_2.bias"}};
  if (name == "qkv.w") return conv1d("attn.c_attn");
  if (name == "qkv.b") return {{.name = h + "attn.c_attn.bias"}};
  if (name == "out.w") return conv1d("attn.c_proj");
  if (name == "out.b") return {{.name = h + "attn.c_proj.bias"}};
  if (name == "up.w") return conv1d("mlp.c_fc");
  if (name == "up.b") return {{.name = h + "mlp.c_fc.bias"}};
  if (name == "down.w") return conv1d("mlp.c_proj");
  if (name == "down.b") return {{.name = h + "mlp.c_proj.bias"}};
  return {};
}

Names llama(const ModelConfig& c, const std::string& name, const std::string& layer) {
  const std::string l = "model.layers." + layer + ".";
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  if (name == "embedding") return {{.name = "model.embed_tokens.weight"}};
  if (name == "final_norm.w") return {{.name = "model.norm.weight"}};
  if (name == "head") return {{.name = "lm_head.weight"}};
  if (name == "norm1.w") return {{.name = l + "input_layernorm.weight"}};
  if (name == "norm2.w") return {{.name = l + "post_attention_layernorm.weight"}};
  auto qkv = [&](const char* what) {
    return Names{{.name = l + "self_attn.q_proj." + what, .first_row = 0, .rows = q},
                 {.name = l + "self_attn.k_proj." + what, .first_row = q, .rows = kv},
                 {.name = l + "self_attn.v_proj." + what, .first_row = q + kv, .rows = kv}};
  };
  if (name == "qkv.w") return qkv("weight");
  if (name == "qkv.b") return qkv("bias");
  if (name == "q_norm") return {{.name = l + "self_attn.q_norm.weight"}};
  if (name == "k_norm") return {{.name = l + "self_attn.k_norm.weight"}};
  if (name == "out.w") return {{.name = l + "self_attn.o_proj.weight"}};
  if (name == "up.w")
    return {{.name = l + "mlp.gate_proj.weight", .first_row = 0, .rows = c.mlp_hidden},
            {.name = l + "mlp.up_proj.weight", .first_row = c.mlp_hidden, .rows = c.mlp_hidden}};
  if (name == "down.w") return {{.name = l + "mlp.down_proj.weight"}};
  return {};
}

Names mpt(const std::string& name, const std::string& layer) {
  const std::string b = "transformer.blocks." + layer + ".";
  if (name == "embedding") return {{.name = "transformer.wte.weight"}};
  if (name == "final_norm.w") return {{.name = "transformer.norm_f.weight"}};
  if (name == "head") return {{.name = "lm_head.weight"}};
  if (name == "norm1.w") return {{.name = b + "norm_1.weight"}};
  if (name == "norm2.w") return {{.name = b + "norm_2.weight"}};
  if (name == "qkv.w") return {{.name = b + "attn.Wqkv.weight"}};
  if (name == "out.w") return {{.name = b + "attn.out_proj.weight"}};
  if (name == "up.w") return {{.name = b + "ffn.up_proj.weight"}};
  if (name == "down.w") return {{.name = b + "ffn.down_proj.weight"}};
  return {};
}

}  // namespace

std::vector<HfTensor> hf_names(const ModelConfig& c, const std::string& name, int layer) {
  const std::string l = std::to_string(layer);
  Names names;
  switch (c.family) {
    case Family::kGpt2: names = gpt2(name, l); break;
    case Family::kLlama: names = llama(c, name, l); break;
    case Family::kMpt: names = mpt(name, l); break;
  }
  require(!names.empty(), "parameter ", name, " of family ", name_of(c.family), " has no Hugging Face name");
  return names;
}

}  // namespace flashgpt
