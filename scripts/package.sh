#!/usr/bin/env bash
# Makes the packages of Lockstep in build/package: lockstep_VERSION_ARCHITECTURE.deb for the Debian or Ubuntu
# that this machine runs, and lockstep-VERSION-linux-ARCHITECTURE.tar.gz, which is unpacked anywhere.
#
#   scripts/package.sh
#
# Both hold the program, the tutorials and the library with its headers, for the CPU, for any processor of
# this machine's architecture; and the book, where scripts/book.sh has built it.
set -euo pipefail
source "$(dirname "$0")/common.sh"

case ${1:-} in
  '') ;;
  -h | --help)
    usage
    exit 0
    ;;
  *) usage_error "unknown argument '$1'" ;;
esac

scripts/setup.sh dpkg-dev file
build package
rm -f build/package/*.deb build/package/*.tar.gz build/package/*.sha256
quietly "packaging build/package" cpack --config build/package/CPackConfig.cmake -B build/package
ls -sh build/package/*.deb build/package/*.tar.gz
