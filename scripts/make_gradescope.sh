#!/usr/bin/env bash
# Makes the archive of a Gradescope autograder for the labs.
#
#   scripts/make_gradescope.sh TEACHER PACKAGE ARCHIVE.zip
#
# TEACHER      the folder that make_labs.sh --teacher made: its secret goes into
#              the archive
# PACKAGE      lockstep-VERSION-linux-ARCHITECTURE.tar.gz, as scripts/package.sh
#              makes it
# ARCHIVE.zip  to be uploaded under "Configure Autograder"; base image: Ubuntu
#              24.04 or newer
#
# Students upload the one source of a lab. The archive holds
#   setup.sh          installs the compiler and the package, where the
#                     autograder's image is built
#   run_autograder    grades /autograder/submission into
#                     /autograder/results/results.json
#   lockstep.tar.gz   the package
#   teacher/secret    from which hidden checks draw their inputs; only root may
#                     read it
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
fail() { # CODE MESSAGE
  echo "make_gradescope.sh: $2" >&2
  exit "$1"
}

case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
esac
[[ $# -eq 3 ]] || fail 2 "expected TEACHER PACKAGE ARCHIVE.zip, found $# words (see --help)"
teacher=$1 package=$2 archive=$3
[[ -f $teacher/secret ]] || fail 1 "expected a secret in $teacher, found none; scripts/make_labs.sh OUTDIR --teacher DIR makes DIR with one"
[[ -f $package ]] || fail 1 "there is no package $package; scripts/package.sh makes one in build/package"
[[ $archive == *.zip ]] || fail 2 "expected an archive that ends in .zip, found '$archive'"
[[ ! -e $archive ]] || fail 1 "$archive is there already"
mkdir -p "$(dirname "$archive")"
archive=$(cd "$(dirname "$archive")" && pwd)/$(basename "$archive")

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/teacher"
cp "$teacher/secret" "$folder/teacher/secret"
cp "$package" "$folder/lockstep.tar.gz"

cat >"$folder/setup.sh" <<'SETUP'
#!/usr/bin/env bash
# Runs once, as root, where Gradescope builds the autograder's image.
set -euo pipefail
apt-get update
apt-get install -y --no-install-recommends g++ libfmt-dev bubblewrap
mkdir -p /opt/lockstep
tar -xzf /autograder/source/lockstep.tar.gz -C /opt/lockstep --strip-components=1
chmod -R go-rwx /autograder/source/teacher
SETUP

# LOCKSTEP_AUTOGRADER and LOCKSTEP are for trying it elsewhere.
cat >"$folder/run_autograder" <<'RUN'
#!/usr/bin/env bash
# Runs once for each submission, as root.
set -euo pipefail
root=${LOCKSTEP_AUTOGRADER:-/autograder}
lockstep=${LOCKSTEP:-/opt/lockstep/bin/lockstep}
results=$root/results/results.json
mkdir -p "$root/results"
if ! "$lockstep" grade "$root/submission" --hidden "$root/source/teacher" --format gradescope --json "$results" \
  2>"$root/problem"; then
  # One line that says why, as JSON wants it.
  problem=$(tr -d '\000-\037"\\' <"$root/problem")
  printf '{"score": 0, "output": "%s", "tests": []}\n' "$problem" >"$results"
fi
RUN
chmod 755 "$folder/setup.sh" "$folder/run_autograder"
chmod 600 "$folder/teacher/secret"

(cd "$folder" && cmake -E tar cf "$archive" --format=zip setup.sh run_autograder lockstep.tar.gz teacher)
echo "$archive: upload it under \"Configure Autograder\"; keep it to yourself, it holds the secret"
