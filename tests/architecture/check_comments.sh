#!/usr/bin/env bash
# Usage: check_comments.sh ROOT
#
# Fails where clang-format has cut a line of a comment that was too long. What it cuts off stands on a
# line of its own, which no writer would leave so:
#   // Bounded:    at most so many items wait, in a line that had a hundred characters and was full with
#   // half
#   //             of them
# So: a full line, then a short one whose first word did not fit there, then one that is indented
# further, below no word of the short one.
set -euo pipefail
shopt -s globstar nullglob
cd "$1"
sources=({engine,kernels,simulate,datasets,tools,tutorials,tests}/**/*.{h,cpp,cu,cuh})
if [[ ${#sources[@]} -eq 0 ]]; then
  echo "[architecture] expected sources under $1, found none"
  exit 1
fi
awk -v columns=100 '
  FNR == 1 { last_start = last_is_cut_off = 0 }
  {
    start = /^ *\/\/ / ? index($0, "//") : 0
    comment = substr($0, start)
    text = start && match(comment, /^\/\/ +/) ? RLENGTH + 1 : 0  # the column where it begins
    follows = start && start == last_start
    if (follows && last_is_cut_off && text >= last_text + 4 && substr(last, text - 1, 2) !~ /^ [^ ]$/) {
      printf "%s:%d: the formatter has cut this comment: %s\n", FILENAME, FNR - 1, last
      num_found++
    }
    split(substr(comment, text), words, " ")
    last_is_cut_off = follows && length(comment) < 60 && length(line) + 1 + length(words[1]) > columns
    last = comment; last_text = text; last_start = start; line = $0
  }
  END { exit num_found > 0 }' "${sources[@]}"
echo "${#sources[@]} files have whole comments"
