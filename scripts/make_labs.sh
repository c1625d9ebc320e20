#!/usr/bin/env bash
# Makes the labs of a course: what students get, and what the teacher keeps.
#
#   scripts/make_labs.sh OUTDIR
#
# OUTDIR/NN_name/    for the students: the lab's page, its header, and its source with the solutions taken out;
#                    each blank compiles, and fails with a message that says what is to be done
# OUTDIR/teacher/    for the teacher alone: the solutions, and a new secret, from which hidden checks draw their
#                    inputs: lockstep grade SUBMISSIONS --hidden OUTDIR/teacher
#
# Builds the process that runs them (lab_host), where scripts/demo.sh has built lockstep without it.
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
fail() { # CODE MESSAGE
  echo "make_labs.sh: $2" >&2
  exit "$1"
}

case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
  '') fail 2 "name the folder that is to be made (see --help)" ;;
  -*) fail 2 "unknown flag '$1' (see --help)" ;;
esac
[[ $# -eq 1 ]] || fail 2 "expected one folder, found $# (see --help)"
out=$1
here=$(cd "$(dirname "$0")" && pwd)
labs=$here/../tutorials/labs
[[ -d $labs ]] || labs=$here # installed, it lies beside the labs
compgen -G "$labs/[0-9][0-9]_*/README.md" >/dev/null || fail 1 "there are no labs in $labs"
if [[ -e $out && -n $(ls -A "$out" 2>/dev/null || echo file) ]]; then
  fail 1 "$out is there already; name another folder, so that no work is lost"
fi

build=$here/../build/release
if [[ -x $build/bin/lockstep && ! -x $build/bin/lab_host ]]; then
  echo "make_labs.sh: building lab_host, in which they run" >&2
  cmake --build "$build" --target lab_host >&2 || fail 1 "lab_host cannot be built (see above)"
fi

# Takes out what stands between "// SOLUTION begin: TEXT" and "// SOLUTION end"; in its place the blank says TEXT.
# Comment lines that follow the first one belong to the text.
take_solutions_out() {
  awk '
    /\/\/ SOLUTION begin: / {
      if (inside) { bad = 1; exit }
      inside = 1
      text = $0
      sub(/.*\/\/ SOLUTION begin: /, "", text)
      indent = $0
      sub(/\/\/ SOLUTION begin: .*/, "", indent)
      in_text = 1
      next
    }
    inside && in_text && /^ *\/\/ / && !/SOLUTION/ {
      line = $0
      sub(/^ *\/\/ */, "", line)
      text = text " " line
      next
    }
    { in_text = 0 }
    /\/\/ SOLUTION end/ {
      if (!inside) { bad = 1; exit }
      inside = 0
      count++
      print indent "// YOUR CODE HERE, in place of the next statement."
      print indent "throw NotDone("
      print indent "    \"" text "\");"
      next
    }
    !inside { print }
    END { if (bad || inside || count == 0) exit 1 }' "$1"
}

mkdir -p "$out/teacher"
chmod 700 "$out/teacher"
num_labs=0
for folder in "$labs"/[0-9][0-9]_*/; do
  lab=$(basename "$folder")
  name=${lab#*_}
  mkdir "$out/$lab" "$out/teacher/$lab"
  cp "$folder/README.md" "$folder/$name.h" "$labs/lab.h" "$out/$lab/"
  if grep -q '"rank.h"' "$folder/$name.h"; then cp "$labs/rank.h" "$out/$lab/"; fi
  take_solutions_out "$folder/$name.cpp" >"$out/$lab/$name.cpp" ||
    fail 1 "$folder$name.cpp: a SOLUTION that begins must end, and there must be one"
  cp "$folder/$name.cpp" "$out/teacher/$lab/"
  num_labs=$((num_labs + 1))
done
od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$out/teacher/secret"
echo >>"$out/teacher/secret"
chmod 600 "$out/teacher/secret"
echo "$num_labs labs in $out; solutions and the secret are in $out/teacher: keep that folder to yourself"
