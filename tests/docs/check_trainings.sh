#!/usr/bin/env bash
# Usage: check_trainings.sh PROGRAM [DATASET]
#
# Runs train_devices or average_gradients as docs/from-the-texts.md does, on the digits or on a downloaded
# DATASET (mnist, fashion-mnist), and checks the values that they print: accuracies, losses, and how near the
# weights are to one device's. The data lies in the folder LOCKSTEP_TEST_DATA, or in ../shared/data beside the
# sources; without it the test is skipped (77).
set -uo pipefail
program=$1
dataset=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${LOCKSTEP_TEST_DATA:-$root/../shared/data}

arguments=(--device cpu)
if [[ -n $dataset ]]; then
  if [[ ! -d $folder/$dataset ]]; then
    echo "skipped: $dataset is not in $folder"
    exit 77
  fi
  arguments+=(--data-dir "$folder")
fi
output=$("$program" "${arguments[@]}" 2>&1) || {
  echo "$output"
  echo "$program ${arguments[*]} failed"
  exit 1
}
echo "$output"

# require WHAT CONDITION: an awk condition over the fields of the lines that hold WHAT; all must hold, and two exist.
require() {
  awk -v what="$1" "index(\$0, what) { ++found; if (!($2)) bad = 1 } END { exit bad || found < 2 }" <<<"$output" || {
    echo "expected of at least two lines with '$1': $2"
    exit 1
  }
}
difference=$(sed -nE 's/.*largest difference ([0-9.e+-]+),.*/\1/p' <<<"$output" | head -1)
if ! awk -v d="$difference" 'BEGIN { exit !(d != "" && d + 0 <= 1e-5) }'; then
  echo "expected weights within 1e-5 of one device's after 20 steps, found '$difference'"
  exit 1
fi
case $(basename "$program"):$dataset in
  train_devices:fashion-mnist) require "test acc: " '$3 + 0 >= 0.83 && $3 + 0 < 0.92' ;;
  train_devices:) require "test acc: " '$3 + 0 >= 0.8' ;;
  average_gradients:mnist) require ", epoch 9: " '$NF + 0 > 0.15 && $NF + 0 < 0.35' ;;
  average_gradients:) require ", epoch 9: " '$NF + 0 > 1.9 && $NF + 0 < 2.15' ;;  # its learning rate suits MNIST
esac
