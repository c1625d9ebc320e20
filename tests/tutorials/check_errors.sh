#!/usr/bin/env bash
# Usage: check_errors.sh PROGRAM
#
# A wrong command line of a tutorial exits 2 with one line on stderr and nothing on stdout.
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for arguments in "--no-such-flag" "--device gpu" "unexpected" \
  "--device cpu --virtual-devices cuda:0*2" "--devices 999" "--devices x"; do
  # shellcheck disable=SC2086  # the words are arguments
  "$1" $arguments >"$folder/out" 2>"$folder/err"
  code=$?
  if [[ $code -ne 2 || -s "$folder/out" || $(wc -l <"$folder/err") -ne 1 ]]; then
    echo "$1 $arguments: exit code $code (expected 2); stdout, then stderr (expected one line):"
    cat "$folder/out" "$folder/err"
    exit 1
  fi
done
