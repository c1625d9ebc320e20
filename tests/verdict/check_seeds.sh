#!/usr/bin/env bash
# check_seeds.sh PROGRAM FLAG...
# `compare` with these flags exits with 0 for ten seeds. Prints for each the largest error of a gradient,
# the largest difference after the first steps, and the drift.
set -euo pipefail
program=$1
shift
flags=()
for word in "$@"; do read -ra words <<< "$word"; flags+=("${words[@]}"); done

source_folder=$(cd "$(dirname "$0")/../.." && pwd)
data=${LOCKSTEP_TEST_DATA:-$source_folder/../shared/data}
if [[ " ${flags[*]} " == *" --dataset mnist "* ]]; then
  if [[ ! -d $data/mnist ]]; then
    echo "skipped: there is no MNIST in $data; set LOCKSTEP_TEST_DATA"
    exit 77
  fi
  flags+=(--data-dir "$data")
fi

for seed in 0 1 2 3 4 5 6 7 8 9; do
  output=$("$program" compare "${flags[@]}" --seed $seed)
  echo "seed $seed"
  grep -A5 '^verdict' <<< "$output"
done
