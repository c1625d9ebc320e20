#!/usr/bin/env bash
# Usage: check_output_test.sh
#
# A test of check_output.sh: it passes a program that prints what its comment promises, and fails
# one that exits non-zero, leaves a line out, prints another word, or promises too little. On cuda
# devices have other names, and a machine without a GPU is skipped, nothing else.
set -euo pipefail
check="$(cd "$(dirname "$0")" && pwd)/check_output.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/source.cpp" <<'SOURCE'
// Expected output (abridged):
//   using device: cpu:0
//   epoch 1  loss 0.5  on [2, 3]
//   ...
//   check: same: largest difference 0, tolerance 1e-05 ... ok
//   a line with a long ...
//   In Model
#include <vector>
SOURCE

# try VERDICT EXIT_CODE SOURCE LINE...: a program that prints the lines, on $device.
device=cpu
try() {
  local verdict=$1 code=$2 source=$3 found=fails
  shift 3
  { echo '#!/usr/bin/env bash'; printf 'echo %q\n' "$@"; echo "exit $code"; } >"$folder/program"
  chmod +x "$folder/program"
  local status=0
  "$check" "$folder/program" "$source" "$device" >"$folder/log" || status=$?
  if [[ $status -eq 0 ]]; then found=passes; elif [[ $status -eq 77 ]]; then found=skips; fi
  if [[ $found != "$verdict" ]]; then
    cat "$folder/log"
    echo "check_output.sh $found, expected that it $verdict: exit code $code, lines: $*"
    exit 1
  fi
}

lines=("using device: cuda:0 (index 0 of 8)" "epoch 1 loss 0.75 on [2, 3]"
  "check: same: largest difference 3e-08, tolerance 1e-05 ... ok" "a line with a long end"
  $'\tIn Model')
try passes 0 "$folder/source.cpp" "${lines[@]}" "something else"
try fails 1 "$folder/source.cpp" "${lines[@]}"
try fails 0 "$folder/source.cpp" "${lines[@]:0:4}"
try fails 0 "$folder/source.cpp" "${lines[@]/loss/gain}"
try fails 0 "$folder/source.cpp" "${lines[@]/2, 3/2, 4}"
try fails 0 "$folder/source.cpp" "${lines[@]/... ok/... FAILED}"
try passes 0 "$folder/source.cpp" "${lines[@]/... ok/... not judged: other programs took the cores}"
head -4 "$folder/source.cpp" >"$folder/short.cpp"
try fails 0 "$folder/short.cpp" "${lines[@]}"

sed -i 's/In Model/In Model on cpu:1/' "$folder/source.cpp"
lines[4]+=" on cuda:1"
try fails 0 "$folder/source.cpp" "${lines[@]}"
try fails 1 "$folder/source.cpp" "[--device] cuda was asked for: no CUDA device"
device=cuda
try passes 0 "$folder/source.cpp" "${lines[@]}"
try fails 0 "$folder/source.cpp" "${lines[@]/Model/Mode}"
try fails 1 "$folder/source.cpp" "${lines[@]}"
try skips 1 "$folder/source.cpp" "[--device] cuda was asked for: no CUDA device"
echo "check_output.sh tells right from wrong"
