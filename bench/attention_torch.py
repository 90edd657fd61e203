#!/usr/bin/env python3
"""Attention of this program beside PyTorch's FA2 (SDPA, flash backend) on one GPU, interleaved, TFLOP/s.

Needs libbench_attention_torch.so (bench/attention_torch.cpp). Tokens fixed at 16,384, heads x head dim = 2048. FLOPs: forward 4 B H S S D, halved when
causal; backward 2.5 times that. A cell: rounds of (ours, theirs) with 20 ms idle before each, 8 calls a round, median.
"""
import argparse
import ctypes
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

p = argparse.ArgumentParser()
p.add_argument("library")
p.add_argument("--lengths", default="512,1024,2048,4096,8192,16384")
p.add_argument("--dims", default="64,128,256")
p.add_argument("--passes", default="forward,backward")
p.add_argument("--rounds", type=int, default=5)
p.add_argument("--half", action="store_true")
p.add_argument("--deterministic", action="store_true")
p.add_argument("--json", default="")
p.add_argument("--commit", default="")
p.add_argument("--date", default="")
a = p.parse_args()


class Problem(ctypes.Structure):
    _fields_ = [(n, ctypes.c_longlong) for n in ("batch", "length_q", "length_k", "heads", "kv_heads", "head_dim")] + [
        ("causal", ctypes.c_int), ("half", ctypes.c_int), ("deterministic", ctypes.c_int), ("dropout", ctypes.c_float),
        ("alibi", ctypes.c_int), ("window_left", ctypes.c_int)]


lib = ctypes.CDLL(a.library)
lib.attention_error.restype = ctypes.c_char_p
for f in (lib.attention_scratch, lib.attention_run):
    f.restype = ctypes.c_longlong
dtype = torch.float16 if a.half else torch.bfloat16


def checked(x):
    if x < 0:
        raise RuntimeError(lib.attention_error().decode())
    return x


def timed(f, calls=8):
    torch.cuda.synchronize()
    time.sleep(0.02)
    e = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    f()
    e[0].record()
    for _ in range(calls):
        f()
    e[1].record()
    torch.cuda.synchronize()
    return e[0].elapsed_time(e[1]) / calls


rows = []
print(torch.cuda.get_device_name(), torch.__version__, flush=True)
for d in map(int, a.dims.split(",")):
    for causal in (False, True):
        for s in map(int, a.lengths.split(",")):
            b, h = max(1, 16384 // s), 2048 // d
            q, k, v, do = (torch.randn(b, s, h, d, device="cuda", dtype=dtype) for _ in range(4))
            o, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
            lse = torch.empty(b, h, s, device="cuda")
            pointers = (ctypes.c_void_p * 9)(*(t.data_ptr() for t in (q, k, v, o, lse, do, dq, dk, dv)))
            problem = Problem(b, s, s, h, h, d, causal, a.half, a.deterministic, 0.0, 0, -1)
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            qt, kt, vt = (t.transpose(1, 2).detach().requires_grad_() for t in (q, k, v))
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
                ot = F.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)
            if "forward" not in a.passes:  # the backward reads o and lse
                checked(lib.attention_run(ctypes.byref(problem), pointers, stream, ctypes.c_void_p(0), ctypes.c_longlong(0), 0))
            for name in a.passes.split(","):
                backward = int(name == "backward")
                bytes_ = checked(lib.attention_scratch(ctypes.byref(problem), pointers, backward))
                scratch = torch.empty(max(bytes_, 1), dtype=torch.uint8, device="cuda")

                def ours():
                    checked(lib.attention_run(ctypes.byref(problem), pointers, stream, ctypes.c_void_p(scratch.data_ptr()),
                                              ctypes.c_longlong(bytes_), backward))

                def theirs():
                    if backward:
                        torch.autograd.grad(ot, (qt, kt, vt), do.transpose(1, 2), retain_graph=True)
                    else:
                        with torch.no_grad(), sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
                            F.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)

                ours()
                times = [[], []]
                for _ in range(a.rounds):
                    times[0].append(timed(ours))
                    times[1].append(timed(theirs))
                ms = [statistics.median(t) for t in times]
                flops = 4 * b * h * s * s * d * (2.5 if backward else 1) / (2 if causal else 1)
                if backward:
                    g = torch.autograd.grad(ot, (qt, kt, vt), do.transpose(1, 2), retain_graph=True)
                    error = max((x.float() - y.transpose(1, 2).float()).abs().max().item() for x, y in zip((dq, dk, dv), g))
                else:
                    error = (o.float() - ot.transpose(1, 2).float()).abs().max().item()
                r = dict(head_dim=d, heads=h, batch=b, seqlen=s, causal=causal, **{"pass": name}, dtype="fp16" if a.half else "bf16",
                         ms=round(ms[0], 4), fa2_ms=round(ms[1], 4), tflops=round(flops / ms[0] / 1e9, 1), fa2_tflops=round(flops / ms[1] / 1e9, 1),
                         ratio=round(ms[1] / ms[0], 3), extra_bytes=bytes_, largest_difference=round(error, 5))
                rows.append(r)
                print(f"D={d:3d} {'causal' if causal else 'full  '} {s:6d} {name:8s} {r['tflops']:6.1f} FA2 {r['fa2_tflops']:6.1f} "
                      f"ratio {r['ratio']:.3f}  difference {error:.4f}", flush=True)
            del q, k, v, do, o, dq, dk, dv, qt, kt, vt, ot
if a.json:
    with open(a.json, "w") as f:
        json.dump(dict(what="attention sm80 beside FA2", date=a.date, commit=a.commit, deterministic=a.deterministic,
                       machine=dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__), rows=rows), f, indent=1)
