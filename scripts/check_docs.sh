#!/usr/bin/env bash
# Runs every command of every page, and compares what it prints with what the page shows.
#
#   scripts/check_docs.sh [--build DIR] [--list] [PAGE...]
#
#   PAGE         README.md, docs/report.md, ...; default: every page at the top, in docs and in tutorials
#   --build DIR  where the programs are (default: build/release, which is built first)
#   --list       runs nothing: says of each command whether it would be run, and if not, why
#
# A page's commands are run one after the other in a fresh copy of the working folder, with the built programs
# in PATH, for at most 180 s each; every block begins in that folder. What a page shows is found like this:
#
#   ```console        lines "$ COMMAND" ("> " goes on), each followed by all that it prints. In these lines "..." is
#                     any text, alone on a line any lines, and N any number; the * of a row that others disturbed is not
#                     compared. Where nothing follows, output is not compared
#   ```               commands, one a line, as long as every line begins with a program or a word of the shell. Behind
#                     them such a block that holds something else is what the last command prints; its numbers
#                     and their units are free, and "..." as above
#   ```text, ```cpp   and other languages: no commands
#
# A comment of the page's source, just before a block, says what cannot be run as it stands:
#
#   <!-- not run: REASON -->             the whole block
#   <!-- not run "WORDS": REASON -->     its commands that begin with WORDS
#   <!-- instead of "WORDS": COMMAND -->    COMMAND is run for the command that begins with WORDS
#   <!-- first: COMMAND -->              run before the block, for what the page takes to be there
#
# In `code` between the blocks, subcommands and flags of lockstep, and files of the project, must be there.
# Programs that a page names but not every machine has (torchrun, mpirun, srun, ...) only run where they are installed.
# A command may only exit with 0, so a line that shows an error ends in `; echo "exit code $?"`. Prints a line
# for each command, then those that were not run with their reasons. Exits 1 if one failed, printed something
# else, or if a block is neither commands nor output nor marked.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
if ! command -v python3 >/dev/null; then
  echo "check_docs.sh: python3 is needed and not in PATH" >&2
  exit 1
fi
exec env PYTHONDONTWRITEBYTECODE=1 python3 "$here/check_docs/main.py" "$@"
