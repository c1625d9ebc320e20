#!/bin/bash
# check_no_solutions.sh ROOT LABS: no file of the installed tree ROOT holds a solution of LABS, the sources' folder, or
# the fix of a bug program, and each lab is there with its blanks. From each solution the longest line stands for it,
# because short ones are everyday code.
set -u
root=$1
labs=$2
failed=0
complain() {
  echo "$1"
  failed=1
}
lines=$(awk '
  /SOLUTION begin/ { inside = 1; longest = ""; next }
  /SOLUTION end/ { inside = 0; print longest }
  inside && !/^ *\/\// { sub(/^ */, ""); if (length > length(longest)) longest = $0 }' "$labs"/{,p}[0-9]*/*.cpp | sort -u)
[ "$(wc -l <<< "$lines")" -ge 30 ] || complain "expected a line of each solution of $labs, found: $lines"
found=$(grep -rIF -f <(echo "$lines") "$root") && complain "lines of solutions: $found"
found=$(grep -rIlE 'SOLUTION (begin|end)' "$root") && complain "solutions: $found"
found=$(find "$root" -name secret -o -name 'fixes.cmake' -o -name spoilers -o -name judge.cpp)
[ -z "$found" ] || complain "not for students: $found"
for source in $(grep -l 'SOLUTION begin' "$labs"/{,p}[0-9]*/*.cpp); do
  blank=$root/share/lockstep/labs/${source#"$labs"/}
  [ "$(grep -c 'throw NotDone(' "$blank")" = "$(grep -c 'SOLUTION begin' "$source")" ] ||
    complain "$blank has not the blanks of $source"
done
exit $failed
