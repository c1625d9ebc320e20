#!/usr/bin/env bash
# Attacks Lockstep at length, with what tests/hostile and tests/fuzz generate, and prints a table of the attacks and
# their outcomes. A crash, a hang or a wrong answer is a failed test: then it exits 1 and prints no table.
#
#   scripts/robustness.sh [--minutes N]      of each fuzz target; default 10
#
# Takes about half an hour on two cores, on which all fuzz targets run at once. These are libFuzzer's, with the
# address and undefined-behaviour sanitizers, so they need clang 16 (Debian: clang-16).
set -euo pipefail
source "$(dirname "$0")/common.sh"

minutes=10
while [[ $# -gt 0 ]]; do
  case $1 in
    --minutes) minutes=${2:?} && shift ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done

scripts/setup.sh clang-16
work=$PWD/build/robustness  # all output, also of what failed
rm -rf "$work"
mkdir -p "$work"

# run_hostile_tests: prints the rows of the table.
run_hostile_tests() {
  build release >&2 || return 1
  echo "lockstep: attacking build/release" >&2
  if ! ctest --preset release -L hostile -L slow -V -j "$(nproc)" >"$work/hostile"; then
    cat "$work/hostile" >&2
    return 1
  fi
  sed -n 's/^[0-9]*: robustness |/|/p' "$work/hostile" | sort
}

# fuzz NAME: a row of the table.
fuzz() {
  local target=$1 log=$work/$1.log found=$work/$1 program=fuzz_readers
  if [[ $target == store_messages ]]; then program=fuzz_store_messages; fi
  mkdir -p "$found"
  if ! LOCKSTEP_FUZZED_READER=$target "build/fuzz/bin/$program" -max_total_time=$((minutes * 60)) -timeout=20 -rss_limit_mb=1024 \
    -artifact_prefix="build/fuzz/$target-" -print_final_stats=1 "$found" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    return 1
  fi
  echo "| libFuzzer, $target | $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") | no crash or hang |"
}

# fuzz_all: prints their rows.
fuzz_all() {
  echo "lockstep: building build/fuzz" >&2
  CXX=clang++-16 quietly "configuring build/fuzz" cmake -B build/fuzz -G Ninja -D CMAKE_BUILD_TYPE=RelWithDebInfo \
    -D LOCKSTEP_FUZZ=ON -D LOCKSTEP_SANITIZE=address -D LOCKSTEP_CUDA=OFF || return 1
  local targets=()
  for corpus in tests/fuzz/corpus/*; do targets+=("$(basename "$corpus")"); done
  quietly "building build/fuzz" ninja -C build/fuzz fuzz_readers fuzz_store_messages || return 1
  echo "lockstep: fuzzing ${#targets[@]} targets, $minutes minutes each" >&2
  export -f fuzz
  export work minutes
  printf '%s\n' "${targets[@]}" | xargs -P 0 -I{} bash -c 'fuzz {}' | sort
}

# In variables, so that a failure ends the script before anything is printed.
hostile=$(run_hostile_tests)
fuzzed=$(fuzz_all)
echo "| target | attacks | outcome |"
echo "|---|---:|---|"
echo "$hostile"
echo "$fuzzed"
