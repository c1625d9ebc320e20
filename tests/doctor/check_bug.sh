#!/bin/bash
# check_bug.sh LOCKSTEP PROGRAM INVARIANT: the doctor finds this invariant, and no other, broken by the program,
# and none with --fixed, which recognises no fewer digits.
set -u
lockstep=$1
program=$2
invariant=$3

fail() {
  printf '%s\n%s\n' "$1" "$said"
  exit 1
}

said=$("$lockstep" doctor --timeout 60 -- "$program" 2> /dev/null)
[ $? -eq 1 ] || fail "expected exit code 1"
found=$(printf '%s\n' "$said" | grep -E '^[a-z]+(-[a-z]+)+: ' | cut -d: -f1 | sort -u)
[ "$found" = "$invariant" ] || fail "expected the finding $invariant and no other, found: $found"
grep -q '^  rule: ' <<< "$said" && grep -q '^  hint: ' <<< "$said" || fail "expected a rule and a hint"
[ -z "$(grep -E '.{81}' <<< "$said")" ] || fail "a line has more than 80 columns"

said=$("$program" --fix 2>&1)
[ $? -eq 2 ] || fail "expected exit code 2 for a flag that it does not have"

said=$("$lockstep" doctor --timeout 60 -- "$program" --fixed 2> /dev/null)
[ $? -eq 0 ] || fail "expected exit code 0 with --fixed"
case "$said" in
  "no broken invariant "*) ;;
  *) fail "expected no finding with --fixed" ;;
esac

# recognised [--fixed]: the percentage that the program prints; nothing where it prints none.
recognised() {
  "$program" "$@" 2> /dev/null | sed -n 's/.* \([0-9.]*\) % of the [0-9]* test digits recognised/\1/p; s/^\([0-9.]*\) % of the [0-9]* test digits recognised/\1/p'
}
wrong=$(recognised) right=$(recognised --fixed)
awk -v wrong="${wrong:-0}" -v right="${right:-0}" 'BEGIN { exit !(right >= wrong) }' ||
  fail "recognises $wrong % with the mistake, and only $right % with --fixed"
