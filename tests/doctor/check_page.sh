#!/bin/bash
# check_page.sh PAGE SPOILERS FOLDER [PROGRAM INVARIANT]...: the bug lab's page has a hint for each program and names no
# invariant, its spoilers have the invariant and a citation, and there is no program more.
set -u
page=$1
spoilers=$2
folder=$3
shift 3
failed=0
complain() {
  echo "$1"
  failed=1
}
tested=$(($# / 2))
while [ $# -gt 0 ]; do
  grep -q "^| \`$1\` | .* |$" "$page" || complain "$page has no hint for $1"
  grep -q "\`$2\`" "$page" && complain "$page names the invariant $2, which is for the spoilers"
  spoiler=$(sed -n "/<summary>$1</,/<\/details>/p" "$spoilers")
  grep -q "^\*\*\`$2\`\.\*\* " <<< "$spoiler" || complain "$spoilers does not name the invariant $2 of $1"
  grep -q '(https://github\.com/' <<< "$spoiler" || complain "$spoilers has no citation for $1"
  shift 2
done
written=$(find "$folder" -maxdepth 1 -name 'bug_*.cpp' | wc -l)
[ "$written" -eq "$tested" ] || complain "$folder has $written programs, $tested are tested"
exit $failed
