#!/usr/bin/env bash
# Usage: check_output.sh PROGRAM SOURCE [DEVICE]
#
# Runs a tutorial with --fast on the CPU, or on a DEVICE named cuda. It must exit 0, and every line
# that the comment on top of its source lists under "Expected output" must be among the lines it
# prints, so that the comment stays true. Where values differ between machines (numbers with a point
# or an exponent, largest differences, the device line) only the words are compared; on cuda names of
# devices are all the same, since the comments say cpu:1. In the comment a line "..." stands for
# anything, and a line that ends with "..." for a line that begins so. A check of times that the program
# did not judge, because others took the cores, is as good as one that holds. Without a GPU, cuda exits 77.
set -uo pipefail
program=$1
source=$2
device=${3:-cpu}

output=$("$program" --fast --device "$device" 2>&1)
code=$?
if [[ $code -ne 0 ]]; then
  echo "$output"
  if [[ $device == cuda && $output == *"[--device] cuda was asked for"* ]]; then exit 77; fi
  echo "$program --fast --device $device exited with $code, expected 0"
  exit 1
fi

any_device='s/^$//'  # changes nothing
if [[ $device == cuda ]]; then any_device='s/(cpu|cuda):[0-9]+/device:#/g'; fi

# Values become #; spaces between words become one.
normalise() {
  sed -E -e 's/^[[:space:]]+//' -e 's/^using device: .*/using device: #/' \
    -e 's/[0-9]+\.[0-9]+(e[-+]?[0-9]+)?|[0-9]+e[-+]?[0-9]+/#/g' \
    -e "$any_device" -e 's/-#/#/g' -e 's/largest difference [0-9]+,/largest difference #,/' \
    -e 's/[[:space:]]+/ /g' -e 's/ $//' -e 's/\.\.\. not( judged.*)?$/... ok/'
}

# The comment's lines after "// Expected output", up to the first line that is no comment.
expected=$(awk '/^\/\/ Expected output/ { found = 1; next }
                found && !/^\/\// { exit }
                found { sub(/^\/\/ ?/, ""); print }' "$source" | normalise | grep -vxE '(\.\.\.)?')
actual=$(normalise <<<"$output")

num_lines=$(grep -c . <<<"$expected")
if [[ $num_lines -lt 5 ]]; then
  echo "$source lists $num_lines lines of expected output; 5 or more are wanted"
  exit 1
fi

missing=0
while IFS= read -r line; do
  if [[ $line == *... ]]; then
    prefix=${line%...}
    found=$(awk -v n="${#prefix}" 'BEGIN { p = ARGV[1]; ARGV[1] = "-" }
                                   substr($0, 1, length(p)) == p { print 1; exit }' \
      "$prefix" <<<"$actual")
  else
    found=$(grep -Fxm 1 -e "$line" <<<"$actual")
  fi
  if [[ -z $found ]]; then
    echo "expected but not printed: $line"
    missing=1
  fi
done <<<"$expected"

if [[ $missing -ne 0 ]]; then
  echo "--- printed, as compared ---"
  echo "$actual"
  exit 1
fi
echo "$num_lines expected lines found"
