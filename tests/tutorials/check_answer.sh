#!/usr/bin/env bash
# Usage: check_answer.sh PROGRAM [MAX_COLUMNS]
#
# A tutorial, run with --fast on the CPU, asks and answers: its first line is its question, one
# "Answer:" of two or three lines holds a figure, and "Now try:" names two commands or more, each of
# which runs (again with --fast) and exits 0. No line of any of these runs is longer than
# MAX_COLUMNS (100).
set -uo pipefail
program=$1
max_columns=${2:-100}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

complain() {
  printf '%s\n' "$program: $1" "--- printed by $program $2 ---" "$(cat "$folder/output")"
  exit 1
}

# run_tutorial FLAG...: its output in $folder/output.
run_tutorial() {
  local code=0 device=(--device cpu)
  if [[ " $* " == *" --device "* ]]; then device=(); fi
  "$program" --fast "${device[@]}" "$@" >"$folder/output" 2>&1 || code=$?
  if [[ $code -ne 0 ]]; then complain "exit code $code, expected 0" "--fast $*"; fi
  # In a locale whose characters are Unicode's, so that "─" counts as one.
  local long_line
  long_line=$(LC_ALL=C.UTF-8 grep -nE "^.{$((max_columns + 1)),}" "$folder/output" | head -1)
  if [[ -n $long_line ]]; then complain "longer than $max_columns columns: $long_line" "--fast $*"; fi
  if ! head -1 "$folder/output" | grep -qE '^Question: '; then
    complain 'the first line does not begin with "Question: "' "--fast $*"
  fi
}

run_tutorial
answer=$(awk '/^Answer: / { found = 1 } /^Now try:/ { exit } found' "$folder/output")
num_lines=$(grep -c . <<<"$answer")
if [[ $num_lines -lt 2 || $num_lines -gt 3 ]]; then
  complain "the answer has $num_lines lines, expected 2 or 3" --fast
fi
if ! grep -q '[0-9]' <<<"$answer"; then complain "the answer holds no figure" --fast; fi

# After "Now try:" a command is indented by two columns, and what one will see by six.
mapfile -t commands < <(awk '/^Now try:/ { found = 1; next } found && /^  [^ ]/' "$folder/output")
if [[ ${#commands[@]} -lt 2 ]]; then
  complain "${#commands[@]} commands under \"Now try:\", expected 2 or more" --fast
fi
for command in "${commands[@]}"; do
  read -ra words <<<"$command"
  if [[ ${words[0]##*/} != "${program##*/}" ]]; then
    complain "\"Now try:\" names another program: $command" --fast
  fi
  if [[ ${#words[@]} -lt 2 ]]; then complain "\"Now try:\" names no flag: $command" --fast; fi
  run_tutorial "${words[@]:1}"
  echo "ran: --fast ${words[*]:1}"
done
