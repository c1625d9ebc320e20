#!/usr/bin/env bash
# Builds Lockstep and runs its test suite.
#
#   scripts/test.sh [--slow] [--gpu] [--preset NAME] [-- CTEST_ARGUMENT...]
#   scripts/test.sh --nightly [PART...]
#
#   --slow           also the tests with the label slow
#   --gpu            only the tests of GPU code, and only their programs are built; of a preset with CUDA
#   --preset NAME    release (default), cpu, cuda, emulated, debug, portable, asan or tsan
#   --nightly        what takes too long for every change: scripts/nightly.sh, all of it or the PARTs named
#   --               what follows goes to ctest, e.g. -- -R ring
#
# Prints the output of failing tests only, then the totals and how many tests were skipped because
# this machine lacks what they need. Exits 0 when no test failed.
set -euo pipefail
source "$(dirname "$0")/common.sh"

preset=release
selection=(-LE '^slow$')
targets=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --slow) selection=() ;;
    --gpu) targets=(gpu_programs) ;;
    --nightly) exec scripts/nightly.sh "${@:2}" ;;
    --preset)
      [[ $# -ge 2 ]] || usage_error "--preset needs a name"
      preset=$2
      shift
      ;;
    --preset=*) preset=${1#*=} ;;
    -h | --help)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done
case $preset in
  release | cpu | cuda | emulated | debug | portable | asan | tsan) ;;
  *) usage_error "unknown preset '$preset'" ;;
esac

if [[ ${#targets[@]} -gt 0 ]]; then selection+=(-L gpu); fi

# Reads ctest's output: passes on the blocks of failing tests and the totals, counts the rest.
show_failures_and_totals() {
  local terminal=no
  if [[ -t 1 ]]; then terminal=yes; fi
  awk -v terminal=$terminal '
    function clear_progress() { if (terminal == "yes") printf "\r\033[K" }
    /^ *[0-9]+\/[0-9]+ +Test +#[0-9]+: / {
      failing = 0
      if (/\*\*\*Not Run \(Disabled\)/) failing = 0  # run by other tests
      else if (/\*\*\*Skipped/) skipped[++num_skipped] = $4
      else if (/\*\*\*/) { failing = 1; clear_progress() }
      else if (terminal == "yes") { printf "\r\033[K%s tests", $1; fflush() }
    }
    /^ *Start +[0-9]+: / { failing = 0 }
    /^[0-9]+% tests passed/ { totals = 1; num_failed = $4; num_tests = $NF; clear_progress(); next }
    /^The following tests did not run/ { listing_skipped = 1 }
    /^The following tests FAILED/ { listing_skipped = 0 }
    /^Label Time Summary/ { in_labels = 1 }
    /^Total Test time/ { in_labels = 0 }
    /^No tests were found/ { print }
    failing || (totals && !in_labels && !listing_skipped && NF) { print; fflush() }
    END {
      clear_progress()
      if (num_skipped) printf "Skipped for what this machine lacks: "
      for (i = 1; i <= num_skipped && i <= 10; i++) printf "%s%s", i == 1 ? "" : ", ", skipped[i]
      if (num_skipped) print (num_skipped > 10 ? ", ..." : "")
      # ctest counts the skipped among the passed.
      if (totals) printf "%d passed, %d failed, %d skipped\n", num_tests - num_failed - num_skipped, num_failed, num_skipped
    }'
}

scripts/setup.sh
build "$preset" "${targets[@]}"
echo "lockstep: testing build/$preset" >&2
# One more than there are cores: many tests wait most of the time, for a time limit or in slow motion.
ctest --preset "$preset" -j "$(($(nproc) + 1))" "${selection[@]}" "$@" 2>&1 | show_failures_and_totals ||
  exit 1
