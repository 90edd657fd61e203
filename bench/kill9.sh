#!/usr/bin/env bash
# Kills a training with SIGKILL at random moments, resumes it each time, and compares its final weights with those of a run that nobody
# killed. It saves at every step, so most kills fall into a save.
#   bench/kill9.sh [PROGRAM] [KILLS]        default: build/flashgpt 20
set -euo pipefail
program=${1:-build/flashgpt}
kills=${2:-20}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mkdir "$folder/text"
for i in $(seq 1 12); do seq $((i * 1000)) $((i * 1000 + 400)) > "$folder/text/$i.txt"; done
"$program" data prepare "$folder/text" --out "$folder/data" > /dev/null 2>&1
settings=(--data "$folder/data" model.preset=gpt-10m model.layers=2 model.width=64 model.heads=4 train_params.context_len=64
  train_params.batch_size=8 train_params.micro_batch=4 train_params.steps=60 --save-every 1 --eval-every 0)

start=$(date +%s%N)
"$program" train --out "$folder/whole" "${settings[@]}" > /dev/null 2>&1
step_ms=$((($(date +%s%N) - start) / 60000000))

sittings() { cat "$folder/killed/train.jsonl" 2> /dev/null | grep -c '"event":"\(start\|resume\)"' || true; }
done_kills=0
in_a_save=0
while ((done_kills < kills)); do
  before=$(sittings)
  "$program" train --out "$folder/killed" --resume=auto "${settings[@]}" > "$folder/log" 2>&1 &
  pid=$!
  # From the first step of this sitting on, up to three steps later.
  while (($(sittings) <= before)) && kill -0 $pid 2> /dev/null; do sleep 0.005; done
  sleep "$(awk -v ms=$((RANDOM % (3 * step_ms + 1))) 'BEGIN { print ms / 1000 }')"
  if ! kill -9 $pid 2> /dev/null; then
    wait $pid || { cat "$folder/log"; exit 1; }
    break # it was done before
  fi
  wait $pid 2> /dev/null || true
  done_kills=$((done_kills + 1))
  if compgen -G "$folder/killed/checkpoints/step_*.tmp" > /dev/null; then in_a_save=$((in_a_save + 1)); fi
done
"$program" train --out "$folder/killed" --resume=auto "${settings[@]}" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }

if cmp "$folder/whole/final/model.safetensors" "$folder/killed/final/model.safetensors"; then
  echo "kill -9: $done_kills kills, $in_a_save of them inside a save, $step_ms ms a step: the final weights have the same bytes"
else
  echo "kill -9: $done_kills kills, $in_a_save of them inside a save: THE FINAL WEIGHTS DIFFER"
  exit 1
fi
