#!/usr/bin/env bash
# Builds Lockstep and runs its main job: train with one device and with several, compare the epoch times,
# and prove that the parallel runs computed the same thing as one device. Three tables: a batch of 64 rows on
# 1, 2, 4 and 8 devices; then 64, 256 and 1024 rows on each of 2 devices, where two devices pay. Then the
# same engine acted out in slow motion on the GPUs of a named server, beside what is predicted for it.
#
#   scripts/demo.sh [OPTION...]        options of `lockstep compare`; they replace those of the first table,
#                                      and leave out the others
#
# The run files are build/demo/out.json, grown.json and acted.json. What they say, with a step of the last
# devices drawn as a timeline, is in build/demo/report.html. A second run starts at once.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi

# Each default is left out where the caller gives the same flag.
defaults=(--dataset digits --model mlp:64-1024-1024-10 --modes 'dp,ddp' --devices '1,2,4,8' --epochs 3
          --json build/demo/out.json --trace build/demo/out.trace.json)
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

scripts/setup.sh
build release lockstep
mkdir -p build/demo

# report RUN.json...: writes the page and says where.
report() {
  echo
  build/release/bin/lockstep report "$@" -o build/demo/report.html
}

if [[ $# -gt 0 ]]; then
  build/release/bin/lockstep compare "${options[@]}" "$@"
  if [[ " ${options[*]} " == *" --json "* ]]; then report build/demo/out.json; fi
  exit 0
fi

echo "The same 64 rows a step, shared by more and more devices:"
build/release/bin/lockstep compare "${options[@]}"
echo
echo "More and more rows a device, each device with one thread:"
build/release/bin/lockstep compare --dataset synthetic:4096x64x10 --model mlp:64-1024-1024-10 --modes ddp \
  --device cpu --devices 2 --per-device-batch 64,256,1024 --threads-per-device 1 --epochs 3 --lr 0.01 \
  --json build/demo/grown.json --trace build/demo/grown.trace.json
echo
echo "The same engine acted out in slow motion on the 8 GPUs of a DGX A100, 2048 rows a step:"
build/release/bin/lockstep compare --act-as dgx-a100 --predict --dataset synthetic:8192x64x10 \
  --model mlp:64-512-512-512-10 --modes ddp --devices 2,4,8 --batch 2048 --lr 0.01 \
  --json build/demo/acted.json --trace build/demo/acted.trace.json
echo
echo "Three kinds of rows: measured ones are what these cores take, which all devices share; acted ones are the
same threads, buckets and messages at the pace of 8 GPUs and the links between them; predicted ones (~) ran
nothing. Acted and predicted agree as far as the model's few rules hold what the engine does."
report build/demo/out.json build/demo/grown.json build/demo/acted.json
