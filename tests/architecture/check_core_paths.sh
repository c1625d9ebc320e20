#!/usr/bin/env bash
# Fails unless each row of docs/architecture.md's core paths names files that exist, and states their lines within 5 %.
#
#   check_core_paths.sh ROOT
set -euo pipefail
cd "$1"

status=0
rows=0
while IFS='|' read -r _ part files lines _; do
  rows=$((rows + 1))
  # Braces are expanded as a shell does; nothing but names of files comes through.
  [[ $files =~ ^[a-z_/.,{}\`\ ]+$ ]] || { echo "not understood: $files" >&2; exit 1; }
  eval "paths=(${files//\`/ })"
  for path in "${paths[@]}"; do
    [[ -f $path ]] || { echo "${part# }: there is no file $path" >&2; status=1; }
  done
  [[ $status -eq 0 ]] || continue
  found=$(cat "${paths[@]}" | wc -l)
  stated=${lines// /}
  if ((found * 100 < stated * 95 || found * 100 > stated * 105)); then
    echo "${part# }: the page states $stated lines, the files have $found" >&2
    status=1
  fi
done < <(sed -n '/^## The core paths/,/^## Decisions/p' docs/architecture.md | grep -E '^\|.*\| [0-9]+ \|$')
[[ $rows -gt 0 ]] || { echo "docs/architecture.md has no core paths" >&2; exit 1; }
exit $status
