#!/usr/bin/env bash
# Builds the book, English and Chinese, in build/book: a web site that is read from the disk, too.
#
#   scripts/book.sh           builds it, checks it, and says where it begins
#   scripts/book.sh tools     only installs what builds it
#   scripts/book.sh serve     builds it and shows it at http://localhost:8000; PORT=N for another port
#
# MkDocs and its theme are installed by pip in build/book-tools, once. The players in its chapters are recorded by
# build/release/bin/lockstep, or the program that LOCKSTEP names; where it is not built they are left out.
set -euo pipefail
source "$(dirname "$0")/common.sh"

tools=build/book-tools

# Installs what scripts/book-requirements.txt lists, unless that is done.
install_tools() {
  if cmp -s scripts/book-requirements.txt "$tools/requirements.txt"; then return; fi
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    echo "book.sh: needs Python 3 with venv and pip: apt-get install python3-venv" >&2
    return 1
  fi
  echo "lockstep: installing MkDocs in $tools" >&2
  if ! python3 -m venv --clear "$tools" || ! "$tools/bin/pip" install -q --disable-pip-version-check --retries 1 \
    --timeout 20 -r scripts/book-requirements.txt >"$tools/pip.log" 2>&1; then
    echo "book.sh: pip could not install MkDocs: is there a network? ($(tail -1 "$tools/pip.log" 2>/dev/null))" >&2
    return 1
  fi
  cp scripts/book-requirements.txt "$tools/requirements.txt"
}

build_book() {
  local config
  if ! "${LOCKSTEP:-build/release/bin/lockstep}" watch --help >/dev/null 2>&1; then
    echo "lockstep: the book will have no players, since ${LOCKSTEP:-build/release/bin/lockstep} is not built" >&2
  fi
  for config in mkdocs.yml mkdocs.zh.yml; do  # the English site first, since the Chinese one lies inside it
    NO_MKDOCS_2_WARNING=1 quietly "mkdocs build -f $config" "$tools/bin/python" -m mkdocs build -q --strict -f "$config"
  done
  "$tools/bin/python" scripts/check_book.py build/book
}

case ${1:-} in
  '' | serve | tools) ;;
  -h | --help)
    usage
    exit 0
    ;;
  *) usage_error "unknown argument '$1'" ;;
esac

install_tools
if [[ ${1:-} == tools ]]; then exit; fi
build_book
if [[ ${1:-} == serve ]]; then
  echo "http://localhost:${PORT:-8000}"
  exec "$tools/bin/python" -m http.server --directory build/book --bind 127.0.0.1 "${PORT:-8000}" >/dev/null 2>&1
fi
echo "build/book/index.html"
