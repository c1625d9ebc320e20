#!/usr/bin/env bash
# Usage: check_player.sh LOCKSTEP
#
# Plays recordings in headless Chromium, 360 and 1440 pixels wide, and fails where
# - an arrow key reaches not every moment, or a moment shows another sentence than the list has,
# - something is wider than the page, a canvas is blank, or a number is NaN,
# - the script fails, or the page asks for a file,
# - the page without JavaScript shows no list.
# Exit code 77, which CTest shows as skipped, where there is no Chromium (LOCKSTEP_CHROMIUM names one).
set -euo pipefail
lockstep=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../support/find_browser.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
{
  "$lockstep" watch --model mlp:8-6-4 --modes dp,ddp --devices 4 --numbers -o two.html
  "$lockstep" watch --modes zero3,pipeline --devices 4 -o cut.html
  "$lockstep" watch --modes ddp --devices 8 --plan ring --model mlp:64-64-10 -o eight.html
  "$lockstep" watch --modes tensor --devices 2 -o tensor.html
  "$lockstep" watch --modes single --accumulate 2 -o one.html
  "$lockstep" watch --act-as dgx-a100 --modes ddp --devices 2 --model mlp:64-128-10 --slow-motion 50 -o slow.html
  "$lockstep" grade "$here/../../../tutorials/labs/p5_zero3" --watch zero3.html
  "$lockstep" grade "$here/../../../tutorials/labs/p8_least_bubble" --watch bubble.html
} >/dev/null
cp "$here/look_at_player.html" .
"$browser" --headless=new --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$folder/profile" \
  --window-size=1600,1000 --enable-logging=stderr --virtual-time-budget=60000 --dump-dom \
  "file://$folder/look_at_player.html" >dom.html 2>messages
status=0
# One page is looked at without its script, and the browser says that it blocks it.
grep CONSOLE messages | grep -v 'Blocked script execution' >errors || true
if [[ -s errors ]]; then
  head -5 errors
  status=1
fi
sed -n '/<pre id="found">/,/<\/pre>/p' dom.html | sed 's/<[^>]*>//g'
if ! grep -q 'looked at 17 pages, 0 problems' dom.html; then status=1; fi
if ((status != 0)); then echo "the player is wrong in Chromium (above)"; fi
exit "$status"
