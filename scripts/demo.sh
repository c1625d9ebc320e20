#!/usr/bin/env bash
# Builds Lockstep and trains three times, each time on one device and on several: a net for which more devices pay,
# one for which they don't, and the 8 GPUs of a DGX A100 in slow motion, beside what is predicted for them. Every
# table ends with the check that several devices computed what one computes.
#
#   scripts/demo.sh [OPTION...]        options of `lockstep compare`; they change the first table and leave out the rest
#
# The run files are build/demo/*.json; build/demo/report.html shows them as charts. LOCKSTEP_PROGRAM names a program to
# run instead of building one, LOCKSTEP_DEMO another folder.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi

folder=${LOCKSTEP_DEMO:-build/demo}
cores=$(nproc)
counts=2  # of devices: up to 8, but no more than there are cores
for count in 4 8; do
  if [[ $count -le $cores ]]; then counts+=,$count; fi
done

# Each default is left out where the caller gives the same flag.
defaults=(--dataset digits --model cnn:32c3-64c3-p2-10 --batch 256 --lr 0.03 --modes 'dp,ddp' --devices "$counts"
          --epochs 3 --json "$folder/it_pays.json" --trace "$folder/it_pays.trace.json")
options=()
for ((i = 0; i < ${#defaults[@]}; i += 2)); do
  flag=${defaults[i]}
  given=no
  for argument in "$@"; do
    if [[ $argument == "$flag" || $argument == "$flag="* ]]; then given=yes; fi
    if [[ $flag == --epochs && $argument == --steps* ]]; then given=yes; fi
  done
  if [[ $given == no ]]; then options+=("$flag" "${defaults[i + 1]}"); fi
done

lockstep=${LOCKSTEP_PROGRAM:-build/release/bin/lockstep}
if [[ -z ${LOCKSTEP_PROGRAM:-} ]]; then
  scripts/setup.sh
  build release lockstep
fi
mkdir -p "$folder"

# report RUN.json...: writes the page and says where.
report() {
  echo
  "$lockstep" report "$@" -o "$folder/report.html"
}

if [[ $# -gt 0 ]]; then
  "$lockstep" compare "${options[@]}" "$@"
  if [[ " ${options[*]} " == *" --json "* ]]; then report "$folder/it_pays.json"; fi
  exit 0
fi

echo "1. Much to compute, little to send: a convolutional net, 256 images a step"
if [[ $cores -gt 1 ]]; then
  echo "   Look at speed-up beside ideal: how much of its core is each device worth?"
else
  echo "   With one core, a second device can only show what sharing it costs."
fi
"$lockstep" compare "${options[@]}"

echo
echo "2. Little to compute, much to send and update: a wide MLP, 64 rows a step"
echo "   Look at the last sentence: where does the second device's time go?"
"$lockstep" compare --dataset digits --model mlp:64-1024-1024-10 --batch 64 --modes dp,ddp --devices 2 --epochs 3 \
  --json "$folder/it_does_not.json" --trace "$folder/it_does_not.trace.json"

echo
echo "3. The 8 GPUs of a DGX A100 in slow motion: an MLP, 2048 rows a step"
echo "   Look at each row beside its prediction (~), and again at speed-up and ideal."
"$lockstep" compare --act-as dgx-a100 --predict --dataset synthetic:8192x64x10 \
  --model mlp:64-512-512-512-10 --modes ddp --devices 2,4,8 --batch 2048 --lr 0.01 \
  --json "$folder/eight_a100.json" --trace "$folder/eight_a100.trace.json"
report "$folder/it_pays.json" "$folder/it_does_not.json" "$folder/eight_a100.json"
