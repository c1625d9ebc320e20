#!/usr/bin/env bash
# Builds and runs one of the numbered programs of tutorials/, or one of tutorials/bugs.
#
#   scripts/tutorial.sh                  lists the numbered ones, each with its question
#   scripts/tutorial.sh 04 [FLAG...]     by number or by name; the flags are the program's (--help lists them)
#   scripts/tutorial.sh bug_02           a program of the bug lab, bug_01 to bug_19
set -euo pipefail
here=$PWD
source "$(dirname "$0")/common.sh"

# A tutorial's first line is its question.
list_tutorials() {
  local file
  for file in tutorials/[0-9][0-9]_*.cpp; do
    printf '  %-22s %s\n' "$(basename "$file" .cpp)" "$(sed -n '1s|^// [0-9]*: ||p' "$file")"
  done
}

case ${1:-} in
  '' | -h | --help)
    usage
    list_tutorials
    exit 0
    ;;
esac

wanted=$(basename "$1" .cpp)
shift
if [[ $wanted =~ ^[0-9]$ ]]; then wanted=0$wanted; fi
found=()
for file in tutorials/[0-9][0-9]_*.cpp; do
  name=$(basename "$file" .cpp)
  if [[ $name == "$wanted" || ${name%%_*} == "$wanted" || ${name#*_} == "$wanted" ]]; then found+=("$name"); fi
done
if [[ $wanted == bug_* && -f tutorials/bugs/$wanted.cpp ]]; then found=("$wanted"); fi
[[ ${#found[@]} -eq 1 ]] || usage_error "there is no tutorial '$wanted'"

scripts/setup.sh
build release "${found[0]}"
program=$PWD/build/release/bin/${found[0]}
cd "$here"
exec "$program" "$@"
