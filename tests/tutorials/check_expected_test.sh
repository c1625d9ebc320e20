#!/usr/bin/env bash
# Usage: check_expected_test.sh
#
# A test of check_expected.sh: it passes other marked numbers, another order of lines in a step, other line ends and
# pictures, and fails a program that exits non-zero, leaves a word out, adds one, or changes an unmarked number.
set -euo pipefail
check="$(cd "$(dirname "$0")" && pwd)/check_expected.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# program EXIT_CODE LINE...
program() {
  local code=$1
  shift
  { echo '#!/usr/bin/env bash'; printf 'echo %q\n' "$@"; echo "exit $code"; } >"$folder/program"
  chmod +x "$folder/program"
}

# try VERDICT EXIT_CODE LINE...
try() {
  local verdict=$1 found=passes
  shift
  program "$@"
  "$check" "$folder/program" "$folder/expected" >"$folder/log" || found=fails
  [[ $found == "$verdict" ]] && return
  cat "$folder/log"
  echo "check_expected.sh $found, expected that it $verdict: exit code $1, lines: ${*:2}"
  exit 1
}

right=("using device: cpu:0 (2 cores)" "rank 0 has 10 rows" "rank 1 has 9 rows" "── Step 1: time ──"
  "gpu 0 |fff |" "took 3.5 ms for 4 rows" "check: fast ... ok" "  /some/bin/01_list --fast")
program 0 "${right[@]}"
"$check" --write "$folder/program" "$folder/expected"
echo "? may be said" >>"$folder/expected"
for marked in 'took ~3.5 ms for 4 rows' '  01_list --fast'; do
  grep -Fxq -e "$marked" "$folder/expected" || { echo "not written: $marked"; cat "$folder/expected"; exit 1; }
done
try passes 0 "${right[@]}"
try passes 0 "using device: cpu:7" "rank 1 has 9 rows" "rank 0 has" "10 rows" "── Step 1: time ──" \
  "gpu 0 | ff|" "took 930 us for 4" "rows" "check: fast ... not judged: others took the cores" "01_list --fast"
for lines in $'check: fast ... not judged: other programs took the\n       cores' \
  $'check: fast ... not\n       judged: other programs' $'check: fast ...\n       not judged'; do
  try passes 0 "${right[@]/check: fast ... ok/$lines}"
done
try fails 0 "${right[@]/check: fast ... ok/$'check: fast ... ok\n       cores'}"
try passes 0 "${right[@]}" "may be said"
try fails 0 "${right[@]}" "may be said" "may be"
try fails 1 "${right[@]}"
try fails 0 "${right[@]:0:7}"
try fails 0 "${right[@]}" "one line more"
try fails 0 "${right[@]/10 rows/11 rows}"
try fails 0 "${right[@]/took 3.5/took no}"
try fails 0 "${right[@]/for 4/for 4 4.5}"
try fails 0 "${right[@]/... ok/... FAILED}"
try fails 0 "rank 0 has 10 rows" "── Step 1: time ──" "rank 1 has 9 rows" "${right[@]:4}"
echo "all verdicts are right"
