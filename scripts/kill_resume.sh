#!/usr/bin/env bash
# Kills training at random instants until it has come to its end, and compares the weights with those of a run that
# was not disturbed:
#
#   scripts/kill_resume.sh [KILLS] [LOCKSTEP]
#
# KILLS (default 200): times that SIGKILL ends the run. Every step writes a checkpoint, so that many kills hit one that
# is being written. Exits 1 if the weights differ, or if a checkpoint could not be read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kills=${1:-200}
lockstep=$(realpath "${2:-build/release/bin/lockstep}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
train=("$lockstep" train --parallel ddp --devices 2 --threads-per-device 1 --optimizer adamw --batch 16 --steps $((kills * 4)))
undisturbed=$("${train[@]}" | grep sha256)
killed=0
while ((killed < kills)); do
  "${train[@]}" --checkpoint-dir kept --checkpoint-every 1 --keep 2 --resume auto >out.txt 2>err.txt &
  run=$!
  # Up to 0.15 s after the first checkpoint that is new: the program's start would take most of the kills.
  newest=$(ls kept 2>/dev/null | tail -1 || true)
  while kill -0 $run 2>/dev/null && [[ $(ls kept 2>/dev/null | tail -1) == "$newest" ]]; do sleep 0.005; done
  sleep "0.$(printf '%03d' $((RANDOM % 150)))"
  if kill -KILL $run 2>/dev/null; then killed=$((killed + 1)); fi
  status=0
  wait $run 2>/dev/null || status=$?
  if ((status == 0)); then  # too fast for the kill: once more from the start
    rm -rf kept
    continue
  fi
  if ((status != 137)); then
    echo "run $killed ended with $status: $(cat err.txt)" >&2
    exit 1
  fi
done
resumed=$("${train[@]}" --checkpoint-dir kept --resume auto | grep sha256)
echo "killed $killed times: $(ls kept | tr '\n' ' ')"
if [[ $resumed != "$undisturbed" ]]; then
  echo "the weights differ: undisturbed $undisturbed, resumed $resumed" >&2
  exit 1
fi
echo "the weights are those of an undisturbed run"
