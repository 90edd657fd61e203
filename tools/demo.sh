#!/usr/bin/env bash
# ./dev demo: trains a small GPT with tiled attention on text of this machine, then writes a few lines with it.
#   --data PATH     text of your own: a file, folder or pattern
#   --seconds N     of training (150)
#   --out DIR       folder of the run
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=150 out=runs/demo-$(date +%Y%m%d-%H%M%S) data=()
while [ $# -gt 0 ]; do
  case $1 in
    --data) data=(--data "${2:?--data needs a path}"); shift 2 ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    *) echo "demo: unknown argument '$1'; known are --data PATH, --seconds N, --out DIR" >&2; exit 2 ;;
  esac
done
start=$SECONDS
build/flashgpt train --config configs/demo.yaml --max-seconds "$seconds" --out "$out" "${data[@]}" >/dev/null
printf '\nA sample, continuing "static ":\n\n' >&2
build/flashgpt generate "$out/final" --prompt "static " --max-new-tokens 300 --temperature 0.7 --seed 1
cat >&2 <<TEXT

Trained and sampled in $((SECONDS - start)) s. The model is a folder that Hugging Face transformers loads: $out/final
What to try next:
  build/flashgpt generate $out/final --prompt "def " --temperature 0.5
  ./dev demo --data ~/my-texts --seconds 600
  build/flashgpt plan --preset gpt2-124m            the memory of a larger one, before it is trained
  build/flashgpt train --help
TEXT
