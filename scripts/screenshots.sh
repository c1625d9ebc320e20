#!/usr/bin/env bash
# Makes the pictures of the report in docs/images and those of eleven moments of the player in docs/images/player: trains
# small models, writes their pages, and lets headless Chromium draw them, on a desk in light and dark and on a phone.
#
#   scripts/screenshots.sh [FOLDER] [report|player]        default: docs/images, both
#
# Needs the packages chromium (LOCKSTEP_CHROMIUM names another) and pngquant; no picture of the report gets more than
# 150 kB, and none of the player more than 60. What it measures is what the pictures show, so let nothing else run
# meanwhile.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi

pictures=${1:-docs/images} which=${2:-both}
browser=${LOCKSTEP_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [[ -z $browser ]]; then usage_error "no chromium found; apt-get install chromium, or set LOCKSTEP_CHROMIUM"; fi
if ! command -v pngquant >/dev/null; then usage_error "no pngquant found; apt-get install pngquant"; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$pictures/player"

build release lockstep bug_07 lab_host
program=$PWD/build/release/bin/lockstep
# shoot NAME PAGE WIDTH HEIGHT [CHROMIUM_FLAG...]: a NAME in the folder player gets fewer colours.
shoot() {
  local picture=$pictures/$1.png shot=$work/shot.png largest=150000 colours=64
  if [[ $1 == player/* ]]; then largest=60000 colours=24; fi
  # A window has a least width, a frame in it has none.
  cat >"$work/frame.html" <<END
<body style="margin:0"><iframe src="$2" style="border:0;display:block;width:$3px;height:$4px"></iframe>
END
  "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
    --virtual-time-budget=8000 --run-all-compositor-stages-before-draw --user-data-dir="$work/profile" --window-size="$3,$4" "${@:5}" --screenshot="$shot" \
    "file://$work/frame.html" >/dev/null 2>&1
  pngquant --force --nofs --output "$shot" "$colours" "$shot"
  if [[ $(stat -c %s "$shot") -gt $largest ]]; then
    echo "screenshots.sh: $picture would have more than $largest bytes" >&2
    exit 1
  fi
  cp "$shot" "$picture"
  echo "$picture: $(stat -c %s "$picture") bytes"
}

if [[ $which != player ]]; then
  (
    cd "$work"
    "$program" compare --modes dp,ddp --devices 1,2,4,8 --epochs 3 --model mlp:64-1024-1024-10 --json shared.json \
      --trace shared.trace.json
    "$program" compare --act-as dgx-a100 --predict --dataset synthetic:8192x64x10 --model mlp:64-512-512-512-10 \
      --modes ddp --devices 2,4,8 --batch 2048 --lr 0.01 --json acted.json --trace acted.trace.json
    "$program" train --parallel ddp --devices 2 --epochs 6 --model mlp:64-256-10 --trace trained.trace.json \
      --json trained.json
    "$program" report acted.json -o one.html
    "$program" report acted.json shared.json trained.json -o several.html
  ) >/dev/null 2>&1
  shoot report one.html 1200 1340
  shoot report-dark one.html 1200 1340 --blink-settings=preferredColorScheme=0
  shoot report-phone one.html 390 1500
  shoot report-runs several.html 1200 1000
fi

if [[ $which != report ]]; then
  (
    cd "$work"
    "$program" watch --model mlp:8-6-4 --modes ddp --devices 4 --plan ring --numbers -o ring.html
    "$program" watch --model mlp:8-6-4 --modes dp,ddp --devices 4 -o two.html
    "$program" watch --modes zero3,pipeline --devices 4 -o cut.html
    "$program" watch --modes ddp --devices 8 --plan ring --act-as dgx-a100 --dataset synthetic:8192x64x10 --batch 2048 \
      --model mlp:64-512-512-512-10 -o eight.html
    "$(dirname "$program")/bug_07" --watch fault.html
    "$program" grade "$OLDPWD/tutorials/labs/p2_overlap" --watch schedule.html
  ) >/dev/null 2>&1
  shoot player/rows ring.html#rows 1200 860
  shoot player/forward ring.html#forward.2 1200 860
  shoot player/gradient ring.html#gradient.2 1200 860
  shoot player/bucket ring.html#call 1200 930
  shoot player/chunks ring.html#arrive.3 1200 930
  shoot player/equal ring.html#end 1200 930
  shoot player/two two.html#reduce 1300 1180
  shoot player/cut cut.html#message.30 1300 1180
  shoot player/eight eight.html#arrive.6 1300 1050 --blink-settings=preferredColorScheme=0
  shoot player/fault fault.html#end 390 1180
  shoot player/schedule schedule.html#arrive.8 1200 1060
fi
