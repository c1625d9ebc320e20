#!/bin/bash
# check_right.sh LOCKSTEP PROGRAM ARGUMENTS: the doctor finds nothing in a program that is right, or that records nothing.
set -u
lockstep=$1
shift
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
said=$("$lockstep" doctor --timeout 200 -- "$@" 2> "$errors")
code=$?
[ $code -eq 0 ] && exit 0
[ $code -eq 2 ] && [[ $said == "the program has recorded nothing"* ]] && exit 0
grep -q 'no GPU\|no CUDA' "$errors" && exit 77
printf '%s\n' "$said"
tail -5 "$errors"
exit 1
