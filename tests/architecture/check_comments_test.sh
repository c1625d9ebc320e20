#!/usr/bin/env bash
# Usage: check_comments_test.sh
#
# A test of check_comments.sh: it finds what the formatter makes of comments that are too long, names file
# and line, and passes lists, tables and code in comments.
set -euo pipefail
check="$(cd "$(dirname "$0")" && pwd)/check_comments.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/engine/core"

# try VERDICT: the code on stdin as the only source.
try() {
  local found=passes
  cat >"$folder/engine/core/a.h"
  "$check" "$folder" >"$folder/log" || found=fails
  if [[ $found == fails ]] && ! grep -q '^engine/core/a.h:[0-9]*: ' "$folder/log"; then found=stumbles; fi
  if [[ $found != "$1" ]]; then
    cat "$folder/engine/core/a.h" "$folder/log"
    echo "check_comments.sh $found, expected that it $1"
    exit 1
  fi
}

try fails <<'CODE'
// Gradient: the sum over devices, added in the order of the devices, on devices[0]. Each piece has
// a
//           node of its own.
CODE
try fails <<'CODE'
  //   copy           moving data between devices; a long line of a table that was too long before
  //   the formatter came to it
  //                  and went on here
CODE
try passes <<'CODE'
// Gradient: the sum over devices, added in the order of the devices, on devices[0]. Each piece has
//           a node of its own.
CODE
try passes <<'CODE'
// A paragraph whose first line is full to the last of its columns, and which is followed by example
// code:
//   for (int i = 0; i < 3; ++i) {
//     work(i);
//   }
CODE
try passes <<'CODE'
// A table whose first line is full to the last of its columns, and whose second has a short name in
// Words:    which the third explains
//           further
CODE
rm "$folder/engine/core/a.h"
if "$check" "$folder" >/dev/null; then
  echo "check_comments.sh passes a folder without sources"
  exit 1
fi
echo "check_comments.sh tells right from wrong"
