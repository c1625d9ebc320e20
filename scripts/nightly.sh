#!/usr/bin/env bash
# Runs the tests that take too long for every change.
#
#   scripts/nightly.sh [PART...]      default: all of them, in hours
#
#   asan, tsan   the suite with sanitizers
#   slow         the tests with the label slow
#   pytorch      PyTorch's and our training compared, with a PyTorch for CPUs that is installed under build
#   tidy         clang-tidy, with the checks of .clang-tidy
#   portable     the suite, built for any processor of this architecture
#   course       every tutorial and its "Now try" commands on one core
#
# All parts run; the last line says which failed, and the exit status is 1 if any did. A part that cannot run here is
# reported as skipped.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all_parts=(asan tsan slow pytorch tidy portable course)

test_asan() { scripts/test.sh --preset asan; }
test_tsan() { scripts/test.sh --preset tsan; }
test_slow() { scripts/test.sh --slow -- -L '^slow$'; }
test_portable() { scripts/test.sh --preset portable; }

test_pytorch() {
  local python=build/torch/bin/python
  if ! "$python" -c 'import torch' 2>/dev/null; then
    # The first index has PyTorch for CPUs alone, which is smaller.
    if ! quietly "making build/torch" python3 -m venv build/torch ||
      ! { "$python" -m pip install -q torch numpy --index-url https://download.pytorch.org/whl/cpu ||
        "$python" -m pip install -q torch numpy; } >/dev/null 2>&1; then
      echo "no PyTorch here: python3-venv or a package index is missing"
      return 77
    fi
  fi
  LOCKSTEP_TORCH_PYTHON=$PWD/$python scripts/test.sh --slow -- -R '^interop\.'
}

# Generated sources are left out: tidying them is tidying their originals.
test_tidy() {
  if ! command -v run-clang-tidy >/dev/null; then
    scripts/setup.sh clang-tidy || return 77
  fi
  quietly "configuring build/alone" cmake --preset cpu -B build/alone || return 1
  run-clang-tidy -quiet -p build/alone -j "$(nproc)" \
    "^$PWD/(engine|kernels|datasets|simulate|tools|tutorials|tests)/" 2>/dev/null | grep -E 'warning:|error:' | sort -u
  [[ ${PIPESTATUS[0]} -eq 0 ]]
}

test_course() {
  if ! command -v taskset >/dev/null; then
    echo "no taskset here (util-linux)"
    return 77
  fi
  build release || return 1  # on all cores
  taskset -c 0 scripts/test.sh -- -L course
}

case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
esac
parts=("$@")
[[ ${#parts[@]} -gt 0 ]] || parts=("${all_parts[@]}")
for name in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $name "* ]] || usage_error "unknown part '$name'"
done
for name in "${parts[@]}"; do part "$name" "test_$name"; done
end_parts "nightly"
