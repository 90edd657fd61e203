#!/usr/bin/env bash
# Trains onto a disk too small for the checkpoints it will want (a tmpfs, so root is needed), in two ways: the space is gone before a save,
# which is seen beforehand, and in the middle of one, because another takes it. Each time the run must end with a message that names the
# space, with code 1 or 3, leave the earlier checkpoint whole, and go on to the same weights once there is room.
#   bench/full_disk.sh [PROGRAM]            default: build/flashgpt
set -euo pipefail
program=$(realpath "${1:-build/flashgpt}")
folder=$(mktemp -d)
mkdir "$folder/disk"
mount -t tmpfs -o size=64m tmpfs "$folder/disk"
trap 'umount "$folder/disk"; rm -rf "$folder"' EXIT

mkdir "$folder/text"
for i in $(seq 1 12); do seq $((i * 1000)) $((i * 1000 + 400)) > "$folder/text/$i.txt"; done
"$program" data prepare "$folder/text" --out "$folder/data" > /dev/null 2>&1
# A checkpoint of about 11 MB.
settings=(--data "$folder/data" model.preset=gpt-10m model.layers=4 model.width=128 model.heads=4 train_params.context_len=64
  train_params.batch_size=4 train_params.micro_batch=4 train_params.steps=6 --save-every 1 --eval-every 0 --keep-last 1)
run="$folder/disk/run"

"$program" train --out "$folder/whole" "${settings[@]}" > /dev/null 2>&1
bytes=$(du -sb "$folder/whole/checkpoints" | cut -f1)

failed() { # NAME: the last run must have failed well
  echo "$1: exit code $code: $(tail -1 "$folder/log")"
  [[ $code == 1 || $code == 3 ]] || { echo "$1: expected exit code 1 or 3"; exit 1; }
  grep -qi 'the disk has\|no space left' "$folder/log" || { echo "$1: the message does not speak of the space"; exit 1; }
  if compgen -G "$run/checkpoints/*.tmp" > /dev/null; then echo "$1: a half-written checkpoint was left behind"; exit 1; fi
}
goes_on() { # NAME
  "$program" train --out "$run" --resume "${settings[@]}" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
  grep -m1 'going on' "$folder/log"
  cmp "$folder/whole/final/model.safetensors" "$run/final/model.safetensors"
  echo "$1: went on, the final weights have the same bytes"
  rm -rf "$run"
}
# Room for one checkpoint and a half.
fallocate -l $((64 * 1048576 - bytes * 3 / 2 - 1048576)) "$folder/disk/other"
code=0
"$program" train --out "$run" "${settings[@]}" > "$folder/log" 2>&1 || code=$?
failed "no room for the next save"
rm "$folder/disk/other"
goes_on "no room for the next save"

# Room for the next checkpoint when the save begins; another writer takes it while the save goes on. The moment is found by trial.
for _ in $(seq 1 200); do
  "$program" train --out "$run" "${settings[@]}" > "$folder/log" 2>&1 &
  pid=$!
  while ! compgen -G "$run/checkpoints/step_0000000[3-5].tmp" > /dev/null && kill -0 $pid 2> /dev/null; do :; done
  head -c 64m /dev/zero > "$folder/disk/other" 2> /dev/null || true
  code=0
  wait $pid || code=$?
  rm -f "$folder/disk/other"
  if grep -qi 'no space left' "$folder/log"; then break; fi
  rm -rf "$run"
done
failed "disk filled in the middle of a save"
goes_on "disk filled in the middle of a save"
echo "full disk: all well"
