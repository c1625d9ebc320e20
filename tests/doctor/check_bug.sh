#!/bin/bash
# check_bug.sh LOCKSTEP PROGRAM FIXED INVARIANT: the doctor finds this invariant, and no other, broken by the program,
# and none by the fixed one, which recognises no fewer digits.
set -u
lockstep=$1
program=$2
fixed=$3
invariant=$4

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

said=$("$program" --fixed 2>&1)
[ $? -eq 2 ] || fail "expected exit code 2 for a flag, and it has none"

said=$("$lockstep" doctor --timeout 60 -- "$fixed" 2> /dev/null)
[ $? -eq 0 ] || fail "expected exit code 0 of the fixed program"
case "$said" in
  "no broken invariant "*) ;;
  *) fail "expected no finding in the fixed program" ;;
esac

# recognised PROGRAM: the percentage that the program prints; nothing where it prints none.
recognised() {
  "$1" 2> /dev/null | sed -n 's/.* \([0-9.]*\) % of the [0-9]* test digits recognised/\1/p; s/^\([0-9.]*\) % of the [0-9]* test digits recognised/\1/p'
}
wrong=$(recognised "$program") right=$(recognised "$fixed")
awk -v wrong="${wrong:-0}" -v right="${right:-0}" 'BEGIN { exit !(right >= wrong) }' ||
  fail "recognises $wrong % with the mistake, and only $right % without"
