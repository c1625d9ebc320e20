#!/usr/bin/env bash
# Usage: check_tutorial.sh PROGRAM SOURCE [EXPECTED]
#
# A tutorial on the CPU passes check_output.sh, check_answer.sh and, where the file EXPECTED is named, check_expected.sh.
# Its run with --fast takes longer than all checks, so they share one: in the program's place they get a script that
# prints again what the program has printed. Under other flags that script is the program.
set -uo pipefail
here=$(dirname "$0")
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

code=0
"$program" --fast --device cpu >"$folder/printed" 2>&1 || code=$?
replay=$folder/$(basename "$program")
cat >"$replay" <<SCRIPT
#!/usr/bin/env bash
if [[ "\$*" != "--fast --device cpu" ]]; then exec $(printf %q "$program") "\$@"; fi
cat $(printf %q "$folder/printed")
exit $code
SCRIPT
chmod +x "$replay"

"$here/check_output.sh" "$replay" "$2" || exit 1
if [[ $# -gt 2 ]]; then "$here/check_expected.sh" "$replay" "$3" || exit 1; fi
"$here/check_answer.sh" "$replay"
