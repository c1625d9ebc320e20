#!/usr/bin/env bash
# Usage: check_page.sh LOCKSTEP
#
# Opens reports of a compare, a slow-motion and a train run in headless Chromium, 390 and 1440 pixels wide, and fails
# where
# - something is wider than the page, or the page asks for a file,
# - its script fails, or a chart has no data, is blank, or is missing,
# - the sentence at the top is missing.
# Exit code 77, which CTest shows as skipped, where there is no Chromium (LOCKSTEP_CHROMIUM names one).
set -euo pipefail
lockstep=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../support/find_browser.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
{
  "$lockstep" compare --modes dp,ddp --devices 1,2,4 --steps 8 --model mlp:64-32-10 --trace compared.trace \
    --json compared.json
  "$lockstep" compare --act-as dgx-a100 --predict --modes ddp --devices 2,8 --steps 4 --model mlp:64-32-10 \
    --trace acted.trace --json acted.json
  "$lockstep" train --parallel ddp --devices 2 --epochs 2 --model mlp:64-32-10 --json trained.json
  "$lockstep" train --model gpt:1-2-16-16 --dataset embedded-text --batch 64 --steps 200 --json text.json
} >/dev/null 2>&1
if "$lockstep" report compared.json -o compared.html 2>&1 | grep "without Chart.js"; then
  echo "skipped: this program was built without Chart.js"
  exit 77
fi
"$lockstep" report acted.json -o acted.html
"$lockstep" predict --family bert --step 0.2 --batch-per-gpu 8 --topology rtx3090-nvlink-8 --modes ddp,zero3 \
  --html predicted.html >/dev/null
"$lockstep" report trained.json -o trained.html
"$lockstep" report text.json -o text.html
"$lockstep" report compared.json acted.json trained.json -o several.html
cp "$here/look_at_page.html" .

# The page that looks reads the other ones, which a browser allows files only by this flag.
"$browser" --headless=new --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$folder/profile" \
  --window-size=1600,1000 --enable-logging=stderr --virtual-time-budget=20000 --dump-dom \
  "file://$folder/look_at_page.html" >dom.html 2>messages
status=0
if grep CONSOLE messages; then status=1; fi
sed -n '/<pre id="found">/,/<\/pre>/p' dom.html | sed 's/<[^>]*>//g' | sort -u
if ! grep -q 'looked at 12 pages, 0 problems' dom.html; then status=1; fi
if ((status != 0)); then echo "the page is wrong in Chromium (above)"; fi
exit "$status"
