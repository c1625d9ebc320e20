#!/usr/bin/env bash
# Makes the pictures of the report in docs/images: trains small models, writes their report, and lets headless
# Chromium draw it, on a desk in light and dark and on a phone.
#
#   scripts/screenshots.sh [FOLDER]        default: docs/images
#
# Needs the packages chromium (LOCKSTEP_CHROMIUM names another) and pngquant; no picture gets more than 150 kB. What it
# measures is what the pictures show, so let nothing else run meanwhile.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi

pictures=${1:-docs/images} largest=150000
browser=${LOCKSTEP_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [[ -z $browser ]]; then usage_error "no chromium found; apt-get install chromium, or set LOCKSTEP_CHROMIUM"; fi
if ! command -v pngquant >/dev/null; then usage_error "no pngquant found; apt-get install pngquant"; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$pictures"

build release lockstep
program=$PWD/build/release/bin/lockstep
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

# shoot NAME PAGE WIDTH HEIGHT [CHROMIUM_FLAG...]
shoot() {
  local picture=$pictures/$1.png
  # A window has a least width, a frame in it has none.
  cat >"$work/frame.html" <<END
<body style="margin:0"><iframe src="$2" style="border:0;display:block;width:$3px;height:$4px"></iframe>
END
  "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
    --virtual-time-budget=8000 --user-data-dir="$work/profile" --window-size="$3,$4" "${@:5}" --screenshot="$work/$1.png" \
    "file://$work/frame.html" >/dev/null 2>&1
  pngquant --force --output "$work/$1.png" 64 "$work/$1.png"
  if [[ $(stat -c %s "$work/$1.png") -gt $largest ]]; then
    echo "screenshots.sh: $picture would have more than $largest bytes" >&2
    exit 1
  fi
  cp "$work/$1.png" "$picture"
  echo "$picture: $(stat -c %s "$picture") bytes"
}

shoot report one.html 1200 1340
shoot report-dark one.html 1200 1340 --blink-settings=preferredColorScheme=0
shoot report-phone one.html 390 1500
shoot report-runs several.html 1200 1000
