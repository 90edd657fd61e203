#!/usr/bin/env python3
"""Fails on an include that layers.txt does not allow, and on a hand-written source file of more than 800 lines."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
allowed = {}
for line in (root / "layers.txt").read_text().splitlines():
    if line and not line.startswith("#"):
        name, _, lower = line.partition(":")
        allowed[name] = {name, "flashgpt", *lower.split()}

faults = []
for path in sorted([*root.glob("src/**/*"), *root.glob("include/**/*")]):
    if path.suffix not in {".h", ".cpp", ".cuh"}:
        continue
    where = path.relative_to(root)
    text = path.read_text().splitlines()
    if len(text) > 800:
        faults.append(f"{where}: {len(text)} lines, at most 800")
    layer = where.parts[1] if where.parts[0] == "src" else None
    if layer and layer not in allowed:
        faults.append(f"{where}: folder {layer} is not in layers.txt")
        continue
    for number, line in enumerate(text, 1):
        match = re.match(r'\s*#include "([^"/]+)/', line)
        if match and match[1] not in (allowed[layer] if layer else {"flashgpt"}):
            faults.append(f"{where}:{number}: {layer or 'include'} may not include {match[1]}")
print("\n".join(faults) or f"layers: {len(allowed)} folders, no forbidden include")
sys.exit(bool(faults))
