#!/usr/bin/env python3
"""Makes the folders beside this file: tiny random models as `transformers` saves them, and what it computes with them.

    make_golden.py          needs torch, transformers and safetensors; the folders in the repository came from transformers 5.24

Each has config.json, the weights, and golden.safetensors:
  input_ids int32 [2, 24]; lengths int32 [2]: tokens of a row that count, from its start
  logits fp32 [2, 24, V]; losses fp32 [2, 24]: of token t + 1 after tokens 0 to t; zeros where no token counts
"""
import json
import os
import pathlib
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, MptConfig, MptForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

HERE = pathlib.Path(__file__).parent
V = 31
LLAMA = dict(vocab_size=V, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32)
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=V, n_positions=32, n_embd=16, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0), {}),
    "llama3": (LlamaForCausalLM, LlamaConfig(**LLAMA, head_dim=6, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=300.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)), {}),
    "llama_linear": (LlamaForCausalLM, LlamaConfig(**LLAMA, rms_norm_eps=1e-3, rope_parameters=dict(
        rope_type="linear", rope_theta=10000.0, factor=4.0)), {"max_shard_size": "6KB"}),
    "mistral": (MistralForCausalLM, MistralConfig(**LLAMA, sliding_window=5), {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**LLAMA, tie_word_embeddings=True), {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**LLAMA, head_dim=8), {}),
    "mpt": (MptForCausalLM, MptConfig(vocab_size=V, d_model=24, n_heads=3, n_layers=2, max_seq_len=32, expansion_ratio=2), {}),
}
DTYPES = {"gpt2": "float32", "llama_linear": "float16"}  # the others bfloat16

for name, (kind, config, how) in MODELS.items():
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(len(name))
    model = kind(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.ndim == 2 else 0.2) + (1.0 if p.ndim == 1 and "bias" not in key else 0.0))
    model.to(getattr(torch, DTYPES.get(name, "bfloat16"))).save_pretrained(folder, **how)
    (folder / "generation_config.json").unlink()
    settings = json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    ids = torch.randint(0, V, (2, 24), generator=torch.Generator().manual_seed(3))
    lengths = [24, 15]
    logits, losses = torch.zeros(2, 24, V), torch.zeros(2, 24)
    with torch.no_grad():
        for row, n in enumerate(lengths):
            got = model(input_ids=ids[row:row + 1, :n], use_cache=False).logits[0]
            logits[row, :n] = got.float()
            losses[row, :n - 1] = -got[:-1].log_softmax(-1).gather(-1, ids[row, 1:n, None]).squeeze(-1).float()
    save_file({"input_ids": ids.int(), "lengths": torch.tensor(lengths, dtype=torch.int32), "logits": logits, "losses": losses},
              folder / "golden.safetensors")
    print(name, settings["model_type"], sum(f.stat().st_size for f in folder.iterdir()), "bytes, largest logit", f"{logits.abs().max():.1f}")
