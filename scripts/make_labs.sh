#!/usr/bin/env bash
# Makes the labs of a course.
#
#   scripts/make_labs.sh OUTDIR                  for students
#   scripts/make_labs.sh OUTDIR --teacher DIR    for a teacher
#
# OUTDIR/NN_name/   a lab's page, its header, and its source with blanks: each
#                   compiles, and fails with a message that says what to do
# OUTDIR/pN_name/   the same for a puzzle
# DIR               the solutions, and a new secret, from which hidden checks
#                   draw their inputs: lockstep grade SUBMISSIONS --hidden DIR
#
# Builds the process that runs them (lab_host), where scripts/demo.sh has built
# lockstep without it. An installed package has no solutions, so DIR is made
# where Lockstep's sources are.
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
fail() { # CODE MESSAGE
  echo "make_labs.sh: $2" >&2
  exit "$1"
}

out='' teacher=''
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --teacher)
      [[ -n ${2:-} ]] || fail 2 "--teacher needs a folder (see --help)"
      teacher=$2
      shift
      ;;
    -*) fail 2 "unknown flag '$1' (see --help)" ;;
    *)
      [[ -z $out ]] || fail 2 "expected one folder, found '$out' and '$1' (see --help)"
      out=$1
      ;;
  esac
  shift
done
[[ -n $out ]] || fail 2 "name the folder that is to be made (see --help)"
here=$(cd "$(dirname "$0")" && pwd)
labs=$here/../tutorials/labs
with_solutions=yes
if [[ ! -d $labs ]]; then # installed, it lies beside the labs, which have blanks
  labs=$here
  with_solutions=no
fi
compgen -G "$labs/[0-9][0-9]_*/README.md" >/dev/null || fail 1 "there are no labs in $labs"
[[ -z $teacher || $with_solutions == yes ]] ||
  fail 1 "an installed package has no solutions; run scripts/make_labs.sh in Lockstep's sources"
for folder in "$out" ${teacher:+"$teacher"}; do
  if [[ -e $folder && -n $(ls -A "$folder" 2>/dev/null || echo file) ]]; then
    fail 1 "$folder is there already; name another folder, so that no work is lost"
  fi
done

build=$here/../build/release
if [[ -x $build/bin/lockstep && ! -x $build/bin/lab_host ]]; then
  echo "make_labs.sh: building lab_host, in which they run" >&2
  cmake --build "$build" --target lab_host >&2 || fail 1 "lab_host cannot be built (see above)"
fi

mkdir -p "$out"
if [[ -n $teacher ]]; then
  mkdir -p "$teacher"
  chmod 700 "$teacher"
fi
num_labs=0
for folder in "$labs"/[0-9][0-9]_*/ "$labs"/p[0-9]_*/; do
  lab=$(basename "$folder")
  name=${lab#*_}
  mkdir "$out/$lab"
  header=$folder/$name.h
  if [[ $lab == p* ]]; then header=$labs/schedule.h; fi
  cp "$folder/README.md" "$header" "$labs/lab.h" "$out/$lab/"
  if grep -q '"rank.h"' "$header"; then cp "$labs/rank.h" "$out/$lab/"; fi
  if [[ $with_solutions == no ]]; then
    cp "$folder/$name.cpp" "$out/$lab/"
  else
    awk -f "$here/take_solutions_out.awk" "$folder/$name.cpp" >"$out/$lab/$name.cpp" ||
      fail 1 "$folder$name.cpp: a SOLUTION that begins must end, and there must be one"
  fi
  if [[ -n $teacher ]]; then
    mkdir "$teacher/$lab"
    cp "$folder/$name.cpp" "$teacher/$lab/"
  fi
  num_labs=$((num_labs + 1))
done
echo "$num_labs labs with blanks in $out"
if [[ -n $teacher ]]; then
  od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$teacher/secret"
  echo >>"$teacher/secret"
  chmod 600 "$teacher/secret"
  echo "their solutions and the secret in $teacher: keep it to yourself"
fi
