#!/usr/bin/env bash
# check_mutant.sh PROGRAM MUTANT FLAGS PART...
# Under the flags, `compare` of the true program exits with 0, and that of the mutant with 1 and with one
# line on stderr that holds every PART.
set -euo pipefail
program=$1 mutant=$2
read -ra flags <<< "$3"
shift 3

"$program" compare "${flags[@]}" > /dev/null

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
code=0
"$mutant" compare "${flags[@]}" > "$folder/out" 2> "$folder/err" || code=$?
cat "$folder/out" "$folder/err"
if [[ $code != 1 ]]; then
  echo "exit code $code, expected 1: the fault was not caught"
  exit 1
fi
if [[ $(wc -l < "$folder/err") != 1 ]]; then
  echo "expected one line on stderr"
  exit 1
fi
for part in "$@"; do
  if ! grep -qE -e "$part" "$folder/err"; then
    echo "the message does not say '$part'"
    exit 1
  fi
done
