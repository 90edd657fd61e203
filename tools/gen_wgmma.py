"""Writes src/core/tile/wgmma_shapes.cuh: one m64nNk16 product a width N. The operand list of inline PTX has to be spelled out, and has N/2
entries; everything else about wgmma is written by hand in wgmma.cuh."""
import sys
import textwrap

WIDTHS = (16, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256)


def wrapped(items, indent):
    return textwrap.fill(", ".join(items), 138, initial_indent=indent, subsequent_indent=indent)


def product(name, n, a_type, a_text, a_operands, flags):
    count = n // 2
    outs = wrapped([f'"+f"(d[{i}])' for i in range(count)], "          ")
    regs = ", ".join(f"%{i}" for i in range(count))
    lines = textwrap.wrap(regs, 120)
    text = "\n".join(f'        "{line}{" " if i + 1 < len(lines) else ""}"' for i, line in enumerate(lines))
    k = count
    a = a_text.format(*[f"%{k + i}" for i in range(len(a_operands))])
    k += len(a_operands)
    immediates = "".join(f", %{k + 2 + i}" for i in range(len(flags)))
    inputs = ", ".join([f'{c}({e})' for c, e in a_operands] + ['"l"(b)', '"r"(accumulate)'] + [f'"n"({f})' for f in flags] + ['"C"(E::kPtx)'])
    suffix = f"%{k + 2 + len(flags)}"
    return f"""  template <class E, int TransA, int TransB> DEVICE static void {name}(float (&d)[{count}], {a_type}, uint64_t b, int accumulate) {{
    asm volatile(
        "{{.reg .pred p; setp.ne.b32 p, %{k + 1}, 0; wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{suffix}.{suffix} {{"
{text}
        "}}, {a}, %{k}, p, 1, 1{immediates};}}"
        :
{outs}
        : {inputs});
  }}
"""


out = """// Written by tools/gen_wgmma.py: the operand lists of one m64nNk16 wgmma a width N. See wgmma.cuh.
#pragma once
#include "core/tile/types.cuh"

namespace flashgpt::tile {

template <int N> struct WgmmaShape;
"""
for n in WIDTHS:
    out += f"\ntemplate <> struct WgmmaShape<{n}> {{\n"
    out += product("ss", n, "uint64_t a", "{}", [('"l"', "a")], ["TransA", "TransB"])
    out += product("rs", n, "const uint32_t* a", "{{{}, {}, {}, {}}}", [('"r"', f"a[{i}]") for i in range(4)], ["TransB"])
    out += "};\n"
out += "\n}  // namespace flashgpt::tile\n"
open(sys.argv[1], "w").write(out)
