#!/usr/bin/env python3
"""plot_loss.py RUN PICTURE.png [BITS [LABEL]]: the loss curve of a run in bits per byte, validation and a yardstick marked; needs matplotlib.

Validation is exact; the training curve takes RUN/data/meta.json's mean number of bytes a token."""
import json
import math
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

lines = [json.loads(line) for line in open(f"{sys.argv[1]}/train.jsonl")]
steps = [x for x in lines if "loss" in x and "event" not in x]
validation = [x for x in lines if x.get("event") == "validation"]
bytes_per_token = json.load(open(f"{sys.argv[1]}/data/meta.json"))["bytes_per_token"]
scale = 1 / math.log(2) / bytes_per_token
window = max(1, len(steps) // 100)
smooth = [sum(s["loss"] for s in steps[max(0, i - window) : i + 1]) / len(steps[max(0, i - window) : i + 1]) for i in range(len(steps))]
figure, axes = plt.subplots(figsize=(8, 4))
axes.plot([s["tokens"] / 1e6 for s in steps], [s["loss"] * scale for s in steps], lw=0.4, color="#bcd4e6")
axes.plot([s["tokens"] / 1e6 for s in steps], [x * scale for x in smooth], lw=1.8, color="#1b4965", label="training")
tokens = {s["step"]: s["tokens"] / 1e6 for s in steps}
axes.plot([tokens[v["step"]] for v in validation], [v["bits_per_byte"] for v in validation], "o", color="#f26419", label="held-out text")
if len(sys.argv) > 3:
    axes.axhline(float(sys.argv[3]), color="#888888", ls="--", lw=1, label=sys.argv[4] if len(sys.argv) > 4 else "trigram model of the same text")
axes.set_xlabel("million tokens")
axes.set_ylabel("bits per byte")
axes.set_ylim(1.5, 5)
axes.legend()
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig(sys.argv[2], dpi=110)
