#!/usr/bin/env bash
# Usage: check_page.sh LOCKSTEP
#
# Opens a report of two runs in headless Chromium, 360 and 1440 pixels wide, and fails where
# - something is wider than the page, or a text of a picture leaves the picture or covers another one,
# - the page has a script, asks for a file, or Chromium reports an error of it,
# - a figure has no size.
# Exit code 77, which CTest shows as skipped, where there is no Chromium (LOCKSTEP_CHROMIUM names one).
set -euo pipefail
lockstep=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
browser=${LOCKSTEP_CHROMIUM:-}
for name in chromium chromium-browser google-chrome; do
  if [[ -z $browser ]]; then browser=$(command -v "$name" || true); fi
done
if [[ -z $browser ]]; then
  echo "skipped: no chromium found; install the package chromium, or name one in LOCKSTEP_CHROMIUM"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$lockstep" compare --modes dp,ddp --devices 1,2,4 --steps 8 --model mlp:64-32-10 --trace compared.trace \
  --json compared.json >/dev/null 2>&1
"$lockstep" train --parallel ddp --devices 2 --steps 30 --model mlp:64-32-10 --log trained.jsonl --json trained.json \
  >/dev/null 2>&1
"$lockstep" report compared.json trained.json -o page.html
cp "$here/look_at_page.html" .

# The page that looks reads the other one, which a browser allows files only by this flag.
"$browser" --headless --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$folder/profile" \
  --window-size=1600,1000 --enable-logging=stderr --virtual-time-budget=10000 --dump-dom \
  "file://$folder/look_at_page.html" >dom.html 2>messages
status=0
if grep CONSOLE messages; then status=1; fi
sed -n 's/.*<pre id="found">\(.*\)/\1/p;/<pre id="found">/,/<\/pre>/p' dom.html | sed 's/<[^>]*>//g' | sort -u
if ! grep -q 'looked at 2 widths, 0 problems' dom.html; then status=1; fi
if ((status != 0)); then echo "the page is wrong in Chromium (above)"; fi
exit "$status"
