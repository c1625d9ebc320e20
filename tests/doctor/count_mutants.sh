#!/bin/bash
# count_mutants.sh LOCKSTEP LEAST_PERCENT [NAME PROGRAM]...: runs the doctor on each mutant, prints a table of what it
# found, and fails unless it found so many per cent. Only a broken invariant counts: that a program fails, which
# anybody sees, does not.
set -u
lockstep=$1
least=$2
shift 2
count=0
found=0
printf '%-50s %s\n' mutant 'broken invariants'
while [ $# -gt 0 ]; do
  arguments=()
  case "$2" in
    */[0-9][0-9]_*) arguments=(--fast --device cpu) ;;
  esac
  said=$("$lockstep" doctor --timeout 60 -- "$2" "${arguments[@]}" 2> /dev/null)
  names=$(printf '%s\n' "$said" | grep '\. Should hold: ' | cut -d: -f1 | sort -u | paste -sd' ')
  count=$((count + 1))
  [ -n "$names" ] && found=$((found + 1))
  printf '%-50s %s\n' "$1" "${names:-MISSED}"
  shift 2
done
printf '%d of %d found\n' "$found" "$count"
[ $((100 * found)) -ge $((least * count)) ]
