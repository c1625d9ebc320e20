#!/usr/bin/env bash
# Builds Lockstep, trains one model on one device and on several, compares the epoch times, and checks that
# the parallel runs computed what one device computes. Then it acts out the same engine in slow motion on the
# 8 GPUs of a DGX A100, beside what is predicted for them.
#
#   scripts/demo.sh [OPTION...]        options of `lockstep compare`; they replace those of the first table,
#                                      and leave out the second
#
# The run files are build/demo/out.json and acted.json; build/demo/report.html shows them as charts.
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

echo "1. Measured on this machine: 64 rows a step, shared by more and more devices"
build/release/bin/lockstep compare "${options[@]}"
echo
echo "2. In slow motion, on the 8 GPUs of a DGX A100: 2048 rows a step, measured and predicted (~)"
build/release/bin/lockstep compare --act-as dgx-a100 --predict --dataset synthetic:8192x64x10 \
  --model mlp:64-512-512-512-10 --modes ddp --devices 2,4,8 --batch 2048 --lr 0.01 \
  --json build/demo/acted.json --trace build/demo/acted.trace.json
report build/demo/out.json build/demo/acted.json
