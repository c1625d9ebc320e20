#!/usr/bin/env bash
# Builds Lockstep and runs its main job: train on the embedded digits with 1, 2, 4 and 8 devices, compare
# the epoch times, and prove that the parallel runs computed the same thing as one device.
#
#   scripts/demo.sh [OPTION...]        options of `lockstep compare`; they replace the demo's own
#
# The run file is build/demo/out.json. A second run starts at once.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi

# Each default is left out where the caller gives the same flag.
defaults=(--dataset digits --model mlp:64-1024-1024-10 --modes 'dp,ddp' --devices '1,2,4,8' --epochs 3
          --json build/demo/out.json)
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
exec build/release/bin/lockstep compare "${options[@]}" "$@"
