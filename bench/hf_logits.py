#!/usr/bin/env python3
"""Logits of the same weights here and in `transformers`, both ways, for every family that is read and written.

    bench/hf_logits.py build/flashgpt [--work FOLDER]       needs torch, transformers and safetensors

there -> here: a small random model of each family, saved with save_pretrained (fp32, and bf16, fp16 or shards for some), is given a padded
batch. Compared are the logits token by token through the KV cache, those after a prompt given at once, and the losses of the forward pass
that training uses.
here -> there: a few steps of `flashgpt train` from random weights, or from one of the models above; final/ is loaded with from_pretrained.
Prints a Markdown table of largest differences and ends with 1 when one is above 1e-4.
"""
import argparse
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, MptConfig, MptForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

LIMIT = 1e-4
ROWS, LENGTH, VOCABULARY = 3, 48, 257
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)

# name, configuration, class, dtype of the file, size of a shard
MODELS = [
    ("GPT-2", GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=64, n_layer=3, n_head=4), GPT2LMHeadModel, "float32", None),
    ("GPT-2, bf16, shards", GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=64, n_layer=3, n_head=4), GPT2LMHeadModel, "bfloat16",
     "100KB"),
    ("Llama", LlamaConfig(**LLAMA), LlamaForCausalLM, "float32", None),
    ("Llama 3: rope scaling, head_dim 32, tied", LlamaConfig(**LLAMA, head_dim=32, tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE),
     LlamaForCausalLM, "float32", None),
    ("Llama, linear rope, fp16, shards",
     LlamaConfig(**LLAMA, rms_norm_eps=1e-5, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), LlamaForCausalLM,
     "float16", "100KB"),
    ("Mistral, window 9", MistralConfig(**LLAMA, sliding_window=9), MistralForCausalLM, "float32", None),
    ("Qwen2", Qwen2Config(**LLAMA, tie_word_embeddings=True), Qwen2ForCausalLM, "float32", None),
    ("Qwen2, window 7, bf16", Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=7, max_window_layers=0), Qwen2ForCausalLM,
     "bfloat16", None),
    ("Qwen3, head_dim 32", Qwen3Config(**LLAMA, head_dim=32), Qwen3ForCausalLM, "float32", None),
    ("MPT", MptConfig(vocab_size=VOCABULARY, d_model=64, n_heads=4, n_layers=3, max_seq_len=128), MptForCausalLM, "float32", None),
    ("MPT, 6 heads", MptConfig(vocab_size=VOCABULARY, d_model=96, n_heads=6, n_layers=2, max_seq_len=128), MptForCausalLM, "float32", None),
]

SIZES = ["model.layers=2", "model.width=64", "model.heads=4", "model.vocab_size=257"]
LLAMA_SIZES = SIZES + ["model.family=llama", "model.kv_heads=2"]
# name, overrides of a training from random weights
TRAININGS = [
    ("gpt2", SIZES + ["model.family=gpt2"]),
    ("gpt2, shards", SIZES + ["model.family=gpt2", "train_params.max_shard_size=100K"]),
    ("llama", LLAMA_SIZES),
    ("llama, llama3 rope, head_dim 32, tied",
     LLAMA_SIZES + ["model.head_dim=32", "model.tie_embeddings=yes", "model.rope_scaling=llama3", "model.rope_factor=8",
                    "model.rope_original_context=32", "model.rope_theta=500"]),
    ("llama, linear rope", LLAMA_SIZES + ["model.rope_scaling=linear", "model.rope_factor=4"]),
    ("llama, window (Mistral)", LLAMA_SIZES + ["model.window=9"]),
    ("llama, qkv_bias (Qwen2)", LLAMA_SIZES + ["model.qkv_bias=true"]),
    ("llama, qkv_bias and window (Qwen2)", LLAMA_SIZES + ["model.qkv_bias=true", "model.window=9"]),
    ("llama, qk_norm (Qwen3)", LLAMA_SIZES + ["model.qk_norm=true", "model.head_dim=32"]),
    ("llama, qk_norm and window (Qwen3)", LLAMA_SIZES + ["model.qk_norm=true", "model.window=9"]),
    ("mpt", SIZES + ["model.family=mpt"]),
]


def batch():
    """Rows of 48, 31 (padded on the left) and 40 tokens (padded on the right)."""
    ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(7))
    mask = torch.ones_like(ids)
    mask[1, :17] = 0
    mask[2, 40:] = 0
    return ids, mask


def theirs(model, ids, mask):
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    arguments = {} if model.config.model_type == "mpt" else dict(position_ids=positions)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask, use_cache=False, **arguments).logits.float()


def ours(program, folder, ids, mask, work):
    save_file({"input_ids": ids, "attention_mask": mask}, str(work / "tokens.safetensors"))
    subprocess.run([program, "eval", folder, "--tokens", work / "tokens.safetensors", "--logits-out", work / "logits.safetensors"], check=True)
    return load_file(str(work / "logits.safetensors"))


def differences(model, got, ids, mask):
    """Largest differences of logits, logits after a prompt, losses; and the size of the logits."""
    want, real = theirs(model, ids, mask), mask.bool()
    last = [int(row.nonzero().max()) for row in mask]
    prompt = torch.stack([want[r, last[r]] for r in range(ROWS)])
    logs = want[:, :-1].log_softmax(-1)
    loss = -logs.gather(-1, ids[:, 1:, None]).squeeze(-1)
    both = real[:, 1:] & real[:, :-1]
    return ((got["logits"] - want)[real].abs().max().item(), (got["prompt_logits"] - prompt).abs().max().item(),
            (got["losses"][:, 1:] - loss)[both].abs().max().item(), want[real].abs().max().item())


def spread(model):
    """Weights large enough that every part of the model shows in the logits."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.1 if p.ndim == 2 else 0.2) + (1.0 if p.ndim == 1 and "bias" not in name else 0.0))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--work", type=pathlib.Path)
    options = options.parse_args()
    program = options.program.resolve()
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="hf_logits_"))
    work.mkdir(parents=True, exist_ok=True)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    ids, mask = batch()
    failed = False
    print(f"transformers {transformers.__version__}, torch {torch.__version__}; {ROWS} rows of up to {LENGTH} tokens, padded\n")
    print("| model | direction | files | largest logit | logits | after a prompt | losses |\n|---|---|---|---|---|---|---|")

    def row(name, direction, folder, model):
        nonlocal failed
        values = differences(model, ours(program, folder, ids, mask, work), ids, mask)
        failed |= not max(values[:3]) <= LIMIT
        files = len(list(folder.glob("*.safetensors")))
        print(f"| {name} | {direction} | {files} | {values[3]:.1f} | " + " | ".join(f"{v:.1e}" for v in values[:3]) + " |", flush=True)

    for i, (name, config, kind, dtype, shard) in enumerate(MODELS):
        model, folder = kind(config), work / f"there{i}"
        spread(model)
        model.to(getattr(torch, dtype)).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        row(name, "there to here", folder, loaded)

    text = work / "text.txt"
    text.write_text("".join(chr(97 + (i * i + i // 7) % 26) if i % 6 else " " for i in range(40000)))
    data = work / "data"
    if not (data / "meta.json").exists():
        subprocess.run([program, "data", "prepare", text, "--out", data], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    training = ["train_params.steps=4", "train_params.batch_size=4", "train_params.context_len=64", "train_params.learning_rate=0.02"]

    def train(name, run, arguments):
        subprocess.run(["rm", "-rf", run], check=True)
        subprocess.run([program, "train", "--data", data, "--out", run, *training, *arguments], check=True, stderr=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)
        loaded, report = AutoModelForCausalLM.from_pretrained(run / "final", dtype=torch.float32, attn_implementation="eager",
                                                              output_loading_info=True)
        problems = {k: v for k, v in report.items() if v}
        assert not problems, f"{name}: {problems}"
        row(name, "here to there", run / "final", loaded.eval())

    for i, (name, arguments) in enumerate(TRAININGS):
        train(name, work / f"here{i}", arguments)
    for i, (name, _, _, _, _) in enumerate(MODELS):
        train(f"{name}, init-from", work / f"from{i}", ["--init-from", work / f"there{i}"])
        kept, made = (json.loads((work / f / "config.json").read_text())["model_type"] for f in (f"there{i}", f"from{i}/final"))
        assert kept == made, f"{name}: read as {kept}, written as {made}"
    print("\n" + ("FAILED: a difference is above" if failed else "all differences at most"), LIMIT)
    return failed


if __name__ == "__main__":
    sys.exit(main())
