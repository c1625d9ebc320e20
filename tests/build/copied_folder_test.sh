#!/usr/bin/env bash
# Usage: copied_folder_test.sh COMMON_SH
#
# build() of scripts/common.sh makes a build folder anew that was copied or renamed, says so, and leaves one alone that
# is where it was made. CMake and Ninja are played here.
set -euo pipefail
common=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/scripts" "$root/build/release" "$root/bin"
cp "$common" "$root/scripts/common.sh"
touch -d '1 hour ago' "$root/CMakePresets.json"
printf '#!/bin/sh\necho configured >>%q/log; touch %q/build/release/build.ninja\n' "$root" "$root" >"$root/bin/cmake"
printf '#!/bin/sh\necho no work to do\n' >"$root/bin/ninja"
chmod +x "$root/bin/cmake" "$root/bin/ninja"
export PATH=$root/bin:$PATH

# try FOLDER: builds where the cache says that it was made in FOLDER.
try() {
  echo "CMAKE_CACHEFILE_DIR:INTERNAL=$1" >"$root/build/release/CMakeCache.txt"
  touch "$root/build/release/build.ninja"
  : >"$root/log"
  bash -ec "source '$root/scripts/common.sh'; build release" 2>"$root/said"
}

try "$root/build/release"
if [[ -s $root/log || -s $root/said ]]; then
  echo "a folder that is where it was made should be left alone:" && cat "$root/log" "$root/said"
  exit 1
fi
try /elsewhere/build/release
if ! grep -q "made in /elsewhere/build/release and then copied or renamed" "$root/said" || [[ ! -s $root/log ]]; then
  echo "a copied folder should be configured anew, and said so:" && cat "$root/log" "$root/said"
  exit 1
fi
