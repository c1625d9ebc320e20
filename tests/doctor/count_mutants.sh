#!/bin/bash
# count_mutants.sh LOCKSTEP LEAST_PERCENT [NAME PROGRAM]...: runs the doctor on each mutant, prints a table of what it
# found, and fails unless it found so many per cent. Only a broken invariant counts: that a program fails, which
# anybody sees, does not.
set -u
lockstep=$1
least=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# examine NAME PROGRAM: leaves the names of the broken invariants in a file.
examine() {
  local arguments=() said
  case "$2" in
    */06_*) arguments=(--device cpu --without nothing) ;;  # by default it makes a mistake at the end
    */[0-9][0-9]_*) arguments=(--fast --device cpu) ;;
  esac
  said=$(LOCKSTEP_MUTANT=$1 "$lockstep" doctor --timeout 60 -- "$2" "${arguments[@]}" 2> /dev/null)
  printf '%s\n' "$said" | grep -E '^[a-z]+(-[a-z]+)+: ' | cut -d: -f1 | sort -u | paste -sd' ' > "$folder/$1"
}

names=()
while [ $# -gt 0 ]; do
  names+=("$1")
  examine "$1" "$2" &
  [ "$(jobs -rp | wc -l)" -ge 2 ] && wait -n
  shift 2
done
wait

found=0
printf '%-50s %s\n' mutant 'broken invariants'
for name in "${names[@]}"; do
  broken=$(cat "$folder/$name")
  [ -n "$broken" ] && found=$((found + 1))
  printf '%-50s %s\n' "$name" "${broken:-MISSED}"
done
printf '%d of %d found\n' "$found" "${#names[@]}"
[ $((100 * found)) -ge $((least * ${#names[@]})) ]
