# Functions that the scripts share; to be sourced. Leaves the shell in the project's root.
# shellcheck shell=bash

script=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec 3>&2  # progress goes there also where the output of a command is kept back

# usage: prints the opening comment of the script that was started.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script"
}

# usage_error MESSAGE: exits 2, as every usage error does.
usage_error() {
  echo "$(basename "$0"): $1 (see --help)" >&2
  exit 2
}

# quietly WHAT COMMAND...: runs a command and shows its output only if it fails.
quietly() {
  local what=$1 log
  shift
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    echo "lockstep: $what failed (its output is above)" >&2
    return 1
  fi
  rm -f "$log"
}

# build PRESET [TARGET...]: configures where that is due, then builds; does nothing when all is fresh.
# On a terminal Ninja's one-line status is the progress; elsewhere a line says so for each tenth.
build() {
  local preset=$1 folder=build/$1 targets=("${@:2}") made_in
  # CMake refuses a cache that was made elsewhere.
  made_in=$(sed -n 's/^CMAKE_CACHEFILE_DIR:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
  if [[ -n $made_in && ! $made_in -ef $folder ]]; then
    echo "lockstep: $folder was made in $made_in and then copied or renamed; configuring it again" >&2
    rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles" "$folder/build.ninja"
  fi
  if [[ ! -f $folder/build.ninja || CMakePresets.json -nt $folder/build.ninja ]]; then
    echo "lockstep: configuring $folder" >&2
    quietly "configuring $folder" cmake --preset "$preset" || return 1
  fi
  if ninja -C "$folder" -n "${targets[@]}" 2>/dev/null | grep -q 'no work to do'; then
    return 0
  fi
  echo "lockstep: building $folder" >&2
  if [[ -t 1 ]]; then
    (cd "$folder" && ninja "${targets[@]}")
  else
    quietly "building $folder" ninja_with_progress "$folder" "${targets[@]}"
  fi
}

# ninja_with_progress FOLDER [TARGET...]: Ninja's output, and a line for each tenth of its steps on the
# terminal or log behind file descriptor 3.
ninja_with_progress() {
  NINJA_STATUS='[%f/%t] ' ninja -C "$1" "${@:2}" | tee >(awk -F'[][/]' '
    /^\[[0-9]+\/[0-9]+\]/ && int(10 * $2 / $3) > tenths {
      tenths = int(10 * $2 / $3); print "lockstep: built " $2 " of " $3; fflush()
    }' >&3)
  return "${PIPESTATUS[0]}"
}

# part TITLE COMMAND: runs a part of CI, says how it went, and remembers a failure for end_parts. 77, CTest's usual
# number for what cannot run here, is reported as skipped.
failed=()
part() {
  local title=$1 start=$SECONDS status=0 verdict=passed
  echo "== $title"
  "$2" || status=$?
  case $status in
    0) ;;
    77) verdict=skipped ;;
    *)
      verdict=FAILED
      failed+=("$title")
      ;;
  esac
  echo "== $title: $verdict ($((SECONDS - start)) s)"
}

# end_parts WHAT: the last line; the status is 1 if a part failed.
end_parts() {
  if [[ ${#failed[@]} -gt 0 ]]; then
    local names
    printf -v names '%s, ' "${failed[@]}"
    echo "$1 failed: ${names%, }"
    return 1
  fi
  echo "$1 passed"
}
