#!/usr/bin/env python3
"""The other side of bench/loss_curve.cpp: the same model, initial weights and tokens in PyTorch (fp32, unfused), the two curves and their difference.

loss_curve_torch.py OUT [PICTURE.png]     needs torch, numpy, safetensors, matplotlib
"""
import csv
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

out = sys.argv[1]
config = json.load(open(f"{out}/model/config.json"))
weights = {k.removeprefix("transformer."): v.clone().requires_grad_() for k, v in load_file(f"{out}/model/model.safetensors").items()}
raw = np.fromfile(f"{out}/batches.bin", dtype=np.int32)
steps, rows, length = (int(x) for x in raw[:3])
batches = torch.from_numpy(raw[3:].reshape(steps, 3, rows, length).astype(np.int64))
heads, layers, eps = config["n_head"], config["n_layer"], config["layer_norm_epsilon"]


def norm(x, name):
    return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], eps)


def linear(x, name):
    return x @ weights[name + ".weight"] + weights[name + ".bias"]


def loss_of(tokens, targets, positions):
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][positions]
    document = (positions == 0).cumsum(1)  # tokens see their own document only
    mask = (document[:, :, None] == document[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()
    for layer in range(layers):
        h = f"h.{layer}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
        x = x + linear(a.transpose(1, 2).reshape(rows, length, -1), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    logits = norm(x, "ln_f") @ weights["wte.weight"].T
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def rate(step, peak=1e-3, warmup=30, final=0.1):
    if step < warmup:
        return peak * step / warmup
    t = (step - warmup) / (steps - warmup)
    return peak * final + peak * (1 - final) * 0.5 * (1 + math.cos(math.pi * t))


matrices = [w for w in weights.values() if w.dim() == 2]
vectors = [w for w in weights.values() if w.dim() == 1]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.95), eps=1e-8)
losses = []
for step in range(1, steps + 1):
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    optimizer.zero_grad()
    loss = loss_of(*batches[step - 1])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
    optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print("step", step, losses[-1], file=sys.stderr)

ours = [float(r["loss"]) for r in csv.DictReader(open(f"{out}/flashgpt.csv"))]
difference = [abs(a - b) for a, b in zip(ours, losses)]
print(f"largest difference over {steps} steps: {max(difference):.2e} at step {difference.index(max(difference)) + 1}; "
      f"last losses {ours[-1]:.5f} and {losses[-1]:.5f}")
if len(sys.argv) > 2:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, height_ratios=[3, 1])
    top.plot(range(1, steps + 1), losses, lw=3, color="#f2a65a", label=f"PyTorch {torch.__version__.split('+')[0]}")
    top.plot(range(1, steps + 1), ours, lw=1, color="#1b4965", label="flashgpt")
    top.set_ylabel("loss (nats a token)")
    top.legend()
    bottom.semilogy(range(1, steps + 1), [max(d, 1e-8) for d in difference], color="#555555", lw=1)
    bottom.axhline(5e-3, color="#c0392b", lw=1, ls="--")
    bottom.set_ylabel("difference")
    bottom.set_xlabel("step")
    figure.suptitle("10M-parameter GPT, same weights and tokens, fp32")
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=110)
sys.exit(max(difference) > 5e-3)
