#!/bin/bash
# check_page.sh PAGE FOLDER [PROGRAM INVARIANT]...: the bug lab's page has a row with the invariant and a spoiler with a
# citation for each program, and there is no program more.
set -u
page=$1
folder=$2
shift 2
failed=0
complain() {
  echo "$1"
  failed=1
}
tested=$(($# / 2))
while [ $# -gt 0 ]; do
  grep -q "^| \`$1\` | .* | \`$2\` |$" "$page" || complain "$page has no row for $1 with the invariant $2"
  spoiler=$(sed -n "/<summary>$1</,/<\/details>/p" "$page")
  grep -q '(https://github\.com/' <<< "$spoiler" || complain "$page has no spoiler with a citation for $1"
  shift 2
done
written=$(find "$folder" -name 'bug_*.cpp' | wc -l)
[ "$written" -eq "$tested" ] || complain "$folder has $written programs, $tested are tested"
exit $failed
