#!/usr/bin/env bash
# Usage: check_answer_test.sh
#
# A test of check_answer.sh: it passes a program that asks, answers and whose commands to try work,
# and fails one that lacks a part of it, prints a line that is too long, or whose flags do not work.
set -euo pipefail
check="$(cd "$(dirname "$0")" && pwd)/check_answer.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# try VERDICT LINE...: a program that prints the lines, and knows --ranks, but not --rank.
try() {
  local verdict=$1 found=fails
  shift
  {
    echo '#!/usr/bin/env bash'
    # shellcheck disable=SC2016  # for the program to expand
    echo 'for flag in "$@"; do if [[ $flag == --rank ]]; then exit 2; fi; done'
    printf 'echo %q\n' "$@"
  } >"$folder/01_program"
  chmod +x "$folder/01_program"
  if "$check" "$folder/01_program" >"$folder/log"; then found=passes; fi
  if [[ $found != "$verdict" ]]; then
    cat "$folder/log"
    echo "check_answer.sh $found, expected that it $verdict: $*"
    exit 1
  fi
}

question="Question: how many?"
answer=("Answer: 4 of them," "        of which 2 are small.")
shows="      there will be more"
next=("Now try:" "  01_program --ranks 8" "$shows" "  01_program --ranks 2 --fast" "$shows")
long=$(printf '─%.0s' {1..100})  # 300 bytes
try passes "$question" "$long" "${answer[@]}" "${next[@]}"
try fails "$question" "$long." "${answer[@]}" "${next[@]}"
try fails "using device: cpu:0" "$question" "${answer[@]}" "${next[@]}"
try fails "$question" "${next[@]}"
try fails "$question" "${answer[0]}" "${next[@]}"
try fails "$question" "Answer: many of them," "        and some are small." "${next[@]}"
try fails "$question" "${answer[@]}" "${answer[1]}" "${answer[1]}" "${next[@]}"
try fails "$question" "${answer[@]}"
try fails "$question" "${answer[@]}" "${next[@]:0:3}"
try fails "$question" "${answer[@]}" "${next[@]/--ranks 8/--rank 8}"
try fails "$question" "${answer[@]}" "${next[@]/--ranks 8/}"
try fails "$question" "${answer[@]}" "${next[@]/01_program/02_program}"
echo "check_answer.sh tells right from wrong"
