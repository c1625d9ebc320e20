#!/usr/bin/env bash
# Installs what Lockstep needs to build: a C++20 compiler, CMake, Ninja, eight libraries and Chart.js.
#
#   scripts/setup.sh [PACKAGE...]      further Debian packages to have as well
#
# Says nothing and needs no rights where nothing is missing. Installs with apt-get as root or through
# sudo without a password; elsewhere it prints one line for the administrator and exits 1.
set -euo pipefail

packages=(g++ cmake ninja-build libeigen3-dev libgtest-dev libgmock-dev libcli11-dev
          nlohmann-json3-dev libfmt-dev zlib1g-dev libssl-dev libjs-chart.js "$@")

fail() {
  echo "lockstep setup: $*" >&2
  exit 1
}

# The header that stands for a library where there is no package database to ask.
header_of() {
  case $1 in
    libeigen3-dev) echo eigen3/Eigen/Core ;;
    libgtest-dev) echo gtest/gtest.h ;;
    libgmock-dev) echo gmock/gmock.h ;;
    libcli11-dev) echo CLI/CLI.hpp ;;
    nlohmann-json3-dev) echo nlohmann/json.hpp ;;
    libfmt-dev) echo fmt/core.h ;;
    zlib1g-dev) echo zlib.h ;;
    libssl-dev) echo openssl/evp.h ;;
    *) return 1 ;;
  esac
}

is_installed() {
  local header
  case $1 in
    g++) command -v "${CXX:-g++}" ;;
    ninja-build) command -v ninja ;;
    clang-[0-9]*) command -v "clang++-${1#clang-}" ;;
    libjs-chart.js) [[ -e /usr/share/javascript/chart.js/chart.min.js || -e /usr/share/nodejs/chart.js ]] ;;
    cmake | git | python3 | clang-format* | clang-tidy | file) command -v "$1" ;;
    *)
      if command -v dpkg-query; then
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>&1) == installed ]]
      else
        header=$(header_of "$1") && "${CXX:-g++}" -E -x c++ -include "$header" /dev/null
      fi
      ;;
  esac >/dev/null 2>&1
}

if [[ -n ${CXX:-} ]] && ! command -v "$CXX" >/dev/null; then
  fail "CXX is '$CXX', which is not a command here"
fi
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then exit 0; fi

command -v apt-get >/dev/null ||
  fail "no apt-get here; install these (Debian's names) with your package manager: ${missing[*]}"
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  as_root=(sudo -n)
  sudo -n true 2>/dev/null || fail "ask your administrator: apt-get install ${missing[*]}"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$log" 2>&1
}

install_missing() {
  apt install -y --no-install-recommends "${missing[@]}"
}

echo "lockstep setup: installing Debian packages: ${missing[*]}" >&2
# Package lists are fetched only where they are absent or have become stale.
if ! install_missing && ! { apt update && install_missing; }; then
  cat "$log" >&2
  fail "apt-get could not install ${missing[*]} (its messages are above)"
fi
# A compiler cache makes second builds quick; a machine that has none to offer builds all the same.
command -v ccache >/dev/null || apt install -y --no-install-recommends ccache || true
