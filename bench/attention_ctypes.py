#!/usr/bin/env python3
"""Attention through the C ABI (include/flashgpt/flashgpt.h) on PyTorch tensors, by ctypes: forward, backward and the call with a KV cache,
each compared with PyTorch in double.

    ninja -C build flashgpt_shared && bench/attention_ctypes.py [build/libflashgpt.so]

Prints the largest error relative to the largest value, for fp32, bf16 and fp16, and what a call costs on a problem of one token."""
import ctypes as c
import math
import sys
import time

import torch

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int64: 4, torch.int32: 5}


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("shape", c.c_int64 * 5), ("strides", c.c_int64 * 5)]


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device", c.c_int32), ("threads", c.c_int32)]


class Spec(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        *((name, c.c_int64) for name in "batch max_q max_k total_q total_k heads kv_heads head_dim v_head_dim".split()),
        ("varlen", c.c_int32), ("dtype", c.c_int32), ("scale", c.c_float), ("softcap", c.c_float),
        *((name, c.c_int32) for name in "alibi sink causal block_mask".split()),
        *((name, c.c_int64) for name in "window_left window_right block_q block_k".split()),
        ("dropout", c.c_float), ("dropout_stream", c.c_uint32), ("head_offset", c.c_int64), ("total_heads", c.c_int64),
        ("partial_output", c.c_int32), ("reserved", c.c_int32),
    ]


def args_struct(name, tensors, *more):
    return type(name, (c.Structure,), {"_fields_": [("size", c.c_size_t), *((t, Tensor) for t in tensors.split()), *more]})


BLOCKS = "full_count partial_count full_index partial_index".split()
LENGTHS = "cu_seqlens_q cu_seqlens_k seqused_q seqused_k alibi_slopes sink dropout_state"
ForwardArgs = args_struct("ForwardArgs", f"o lse q k v {LENGTHS} " + " ".join(BLOCKS))
BackwardArgs = args_struct("BackwardArgs", f"dq dk dv dout q k v o lse dlse {LENGTHS} dsink " + " ".join(BLOCKS) + " " +
                           " ".join("key_" + b for b in BLOCKS))
DecodeArgs = args_struct(
    "DecodeArgs", "o lse q k_cache v_cache k_new v_new lengths new_lengths seqused_q batch_index left_pad page_table "
    "rotary_cos rotary_sin alibi_slopes sink", ("rotary_interleaved", c.c_int32), ("reserved", c.c_int32))


def tensor(t):
    r = Tensor()
    r.data, r.dtype, r.rank = t.data_ptr(), DTYPES[t.dtype], t.dim()
    r.shape[:t.dim()], r.strides[:t.dim()] = t.shape, t.stride()
    return r


class Flashgpt:

    def __init__(self, path, threads=0):
        self.lib = c.CDLL(path)
        self.lib.flashgpt_message.restype = c.c_char_p
        self.context = c.c_void_p()
        self.check(self.lib.flashgpt_create(c.byref(Options(c.sizeof(Options), 0, threads)), c.byref(self.context)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.flashgpt_message().decode())

    def spec(self, **fields):
        s = Spec()
        self.lib.flashgpt_attention_spec_init(c.byref(s))
        for name, value in fields.items():
            setattr(s, name, value)
        return s

    def prepared(self, op, spec, args_type, **tensors):
        """A call that can be made again and again: nothing is checked twice by Python, and the workspace is there."""
        args = args_type(size=c.sizeof(args_type))
        for name, value in tensors.items():
            setattr(args, name, tensor(value) if isinstance(value, torch.Tensor) else value)
        size = c.c_size_t()
        function = lambda suffix: getattr(self.lib, f"flashgpt_attention_{op}{suffix}")
        self.check(function("_prepare")(self.context, c.byref(spec), c.byref(args)))
        self.check(function("_workspace")(self.context, c.byref(spec), c.byref(args), c.byref(size)))
        workspace = torch.empty(size.value // 8 + 1, dtype=torch.int64)
        pointers = self.context, c.byref(spec), c.byref(args), c.c_void_p(workspace.data_ptr()), size, None
        run = function("")

        def call(keep=(workspace, args, spec, tensors)):
            self.check(run(*pointers))

        return call


def reference(q, k, v, causal, sink):
    """Plain attention; q [B, T, H, D], k and v [B, S, Hk, D], sink [H]."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[3])
    if causal:
        i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None]
        scores = scores.masked_fill(j > i + k.shape[1] - q.shape[1], -math.inf)
    if sink is not None:
        scores = torch.cat([scores, sink[None, :, None, None].expand(*scores.shape[:3], 1)], 3)
    p = scores.softmax(3)[..., :k.shape[1]]
    return torch.einsum("bhij,bjhd->bihd", p, v), scores.logsumexp(3)


def error(got, want):
    return ((got.double() - want).abs().max() / want.abs().max()).item()


def train_like(lib, dtype):
    b, t, h, hk, d = 2, 300, 8, 2, 64
    qkv = torch.randn(b, t, h + 2 * hk, d).to(dtype)  # views of one packed tensor
    q, k, v = qkv[:, :, :h], qkv[:, :, h:h + hk], qkv[:, :, h + hk:]
    sink, dout = torch.randn(h), torch.randn(b, t, h, d).to(dtype)
    o, lse, dqkv, dsink = torch.empty(b, t, h, d, dtype=dtype), torch.empty(b, h, t), torch.empty_like(qkv), torch.zeros(h)
    spec = lib.spec(batch=b, max_q=t, max_k=t, heads=h, kv_heads=hk, head_dim=d, v_head_dim=d, dtype=DTYPES[dtype], causal=1, sink=1)
    lib.prepared("forward", spec, ForwardArgs, o=o, lse=lse, q=q, k=k, v=v, sink=sink)()
    lib.prepared("backward", spec, BackwardArgs, dq=dqkv[:, :, :h], dk=dqkv[:, :, h:h + hk], dv=dqkv[:, :, h + hk:], dout=dout, q=q, k=k,
                 v=v, o=o, lse=lse, sink=sink, dsink=dsink)()
    wide = [x.detach().double().requires_grad_() for x in (q, k, v, sink)]
    want, want_lse = reference(*wide[:3], True, wide[3])
    want.backward(dout.double())
    dq, dk, dv, ds = (x.grad for x in wide)
    return {"o": error(o, want.detach()), "lse": error(lse, want_lse.detach()), "dq": error(dqkv[:, :, :h], dq),
            "dk": error(dqkv[:, :, h:h + hk], dk), "dv": error(dqkv[:, :, h + hk:], dv), "dsink": error(dsink, ds)}


def decode_like(lib, dtype):
    """Two sequences in pages of 16, one new token each, rotated inside the call."""
    b, h, hk, d, page, most = 2, 8, 2, 64, 16, 40
    lengths = torch.tensor([603, 77], dtype=torch.int32)
    pages = torch.randperm(2 * b * most)[:b * most].reshape(b, most).int()
    k_cache, v_cache = (torch.randn(2 * b * most, page, hk, d).to(dtype) for _ in range(2))
    q, k_new, v_new = (torch.randn(b, 1, n, d).to(dtype) for n in (h, hk, hk))
    angle = torch.arange(page * most)[:, None] * 10000.0**(-torch.arange(d // 2) / (d // 2))
    o, cos, sin = torch.empty(b, 1, h, d, dtype=dtype), angle.cos().contiguous(), angle.sin().contiguous()
    spec = lib.spec(batch=b, max_q=1, max_k=page * most, heads=h, kv_heads=hk, head_dim=d, v_head_dim=d, dtype=DTYPES[dtype], causal=1)
    lib.prepared("decode", spec, DecodeArgs, o=o, q=q, k_cache=k_cache, v_cache=v_cache, k_new=k_new, v_new=v_new, lengths=lengths,
                 page_table=pages, rotary_cos=cos, rotary_sin=sin)()

    def rotated(x, position):
        x, y = x.double().chunk(2, -1)
        cs, sn = cos[position].double(), sin[position].double()
        return torch.cat([x * cs - y * sn, x * sn + y * cs], -1)

    worst, appended = 0.0, 0.0
    for s in range(b):
        n = lengths[s].item()
        rows = lambda cache: cache[pages[s].long()].reshape(-1, hk, d)[:n + 1].double()
        appended = max(appended, error(rows(k_cache)[n], rotated(k_new[s, 0], n)), error(rows(v_cache)[n], v_new[s, 0].double()))
        want, _ = reference(rotated(q[s:s + 1], n), rows(k_cache)[None], rows(v_cache)[None], True, None)
        worst = max(worst, error(o[s:s + 1], want))
    return {"o": worst, "appended": appended}


def main():
    torch.manual_seed(1)
    lib = Flashgpt(sys.argv[1] if len(sys.argv) > 1 else "build/libflashgpt.so")
    limits = {torch.float32: 1e-5, torch.bfloat16: 1.5e-2, torch.float16: 2e-3}
    good = True
    for dtype, limit in limits.items():
        for name, run in (("forward, backward", train_like), ("cache", decode_like)):
            errors = run(lib, dtype)
            good &= all(e < limit for e in errors.values())
            print(f"{str(dtype)[6:]:9}{name:18}" + "  ".join(f"{k} {e:.1e}" for k, e in errors.items()))
    one = lib.spec(batch=1, max_q=1, max_k=1, heads=1, kv_heads=1, head_dim=8, v_head_dim=8)
    x, o = torch.randn(1, 1, 1, 8), torch.empty(1, 1, 1, 8)
    call = lib.prepared("forward", one, ForwardArgs, o=o, q=x, k=x, v=x)
    times = []
    for _ in range(2000):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    print(f"a call for one token, Python included: {1e6 * sorted(times)[len(times) // 2]:.1f} us")
    try:
        lib.prepared("forward", lib.spec(batch=1, max_q=1, max_k=1, heads=3, kv_heads=2, head_dim=8, v_head_dim=8), ForwardArgs, o=o, q=x,
                     k=x, v=x)
        good = False
    except RuntimeError as e:
        print("an error:", e)
    sys.exit(0 if good else "errors are larger than expected")


if __name__ == "__main__":
    main()
