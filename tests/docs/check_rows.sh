#!/usr/bin/env bash
# Usage: check_rows.sh FROM_THE_TEXTS.md
#
# Every row of the page ("### 1.4 ...") says whether its text is right, and has a command, or leads to a row that has
# one. Rows are numbered without gaps, and every link inside the page leads to one.
set -euo pipefail
awk '
  function finish() {
    if (row == "") return
    if (!verdict) { print row ": does not say whether the text is right (bold)"; bad = 1 }
    if (!command && !link) { print row ": has no command"; bad = 1 }
  }
  /^## Text / { text = $3 + 0; number = 0 }
  /^### / {
    finish()
    row = $2; verdict = command = link = 0
    if (row != text "." ++number) { print row ": expected " text "." number; bad = 1 }
    ++num_rows
    anchor = tolower(substr($0, 5))
    gsub(/[^a-z0-9 _-]/, "", anchor)
    gsub(/ /, "-", anchor)
    anchors[anchor] = 1
  }
  /\*\*|The text ends|The text leaves it out|"Writing Distributed/ { verdict = 1 }
  /^\$ / { command = 1 }
  {
    rest = $0
    while (match(rest, /\]\(#[^)]*\)/)) {
      links[substr(rest, RSTART + 3, RLENGTH - 4)] = 1
      link = 1
      rest = substr(rest, RSTART + RLENGTH)
    }
  }
  END {
    finish()
    for (name in links) if (!(name in anchors)) { print "no row for the link #" name; bad = 1 }
    if (num_rows < 40) { print "expected 40 rows or more, found " num_rows + 0; bad = 1 }
    print num_rows " rows"
    exit bad
  }' "$1"
