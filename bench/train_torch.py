#!/usr/bin/env python3
"""PyTorch's rate for a training step of GPT-2 124M on the CPU, fp32, beside ours, interleaved: the median of each.

train_torch.py FLASHGPT_BINARY [--batch 1] [--context 1024] [--rounds 3] [--compile]      needs torch
"""
import argparse
import re
import statistics
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("flashgpt")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--context", type=int, default=1024)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
torch.set_num_threads(args.threads)
C, L, H, V = 768, 12, 12, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out, self.up, self.down = nn.Linear(C, 3 * C), nn.Linear(C, C), nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, H, C // H).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, C))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(args.context, C)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(C)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy((self.norm(h) @ self.wte.weight.T).view(-1, V), y.view(-1))


model = Gpt()
step_model = torch.compile(model) if args.compile else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randint(0, V, (args.batch, args.context))


def torch_step():
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    step_model(x, x).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return args.batch * args.context / (time.perf_counter() - start)


def our_rate():
    out = subprocess.run([args.flashgpt, "bench", "train", "--preset", "gpt2-124m", "--micro-batch", str(args.batch), "--context-len", str(args.context),
                          "--rounds", "1", "--threads", str(args.threads)], capture_output=True, text=True, check=True).stdout
    return float(re.search(r": ([\d.]+) tokens/s", out)[1])


torch_step()
theirs, ours = [], []
for _ in range(args.rounds):
    theirs.append(torch_step())
    ours.append(our_rate())
a, b = statistics.median(ours), statistics.median(theirs)
print(f"GPT-2 124M, {args.batch} x {args.context}, {args.threads} threads: flashgpt {a:.1f} tokens/s, PyTorch {torch.__version__} "
      f"{'compiled' if args.compile else 'eager'} {b:.1f} tokens/s, ratio {a / b:.2f}")
