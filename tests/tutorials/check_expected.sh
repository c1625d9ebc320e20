#!/usr/bin/env bash
# Usage: check_expected.sh [--write] PROGRAM EXPECTED
#
# Runs a tutorial with --fast on the CPU; what it prints must be what the file EXPECTED holds, but for numbers that
# may vary (expected.awk says how they are marked). --write makes the file, of three runs.
set -uo pipefail
here=$(dirname "$0")
write=no
if [[ $1 == --write ]]; then write=yes; shift; fi
program=$1
expected=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

run() {
  "$program" --fast --device cpu >"$1" 2>&1 && return
  printf '%s\n' "$(cat "$1")" "$program --fast --device cpu failed"
  exit 1
}

if [[ $write == yes ]]; then
  for i in 1 2 3; do run "$folder/$i"; done
  awk -v mark=1 -f "$here/expected.awk" "$folder"/[123] >"$expected"
  exit
fi
run "$folder/printed"
if ! awk -f "$here/expected.awk" "$expected" "$folder/printed"; then
  printf '%s\n' '--- printed ---' "$(cat "$folder/printed")" \
    "If that is right: tests/tutorials/check_expected.sh --write PROGRAM $expected"
  exit 1
fi
