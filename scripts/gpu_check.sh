#!/usr/bin/env bash
# Checks Lockstep on a machine with an NVIDIA GPU, in stages, from programs that were built elsewhere.
#
#   scripts/gpu_check.sh pack FILE.tar.xz [--arch 90]
#       On a machine with the CUDA toolkit, but without a GPU: builds the cuda preset for one compute capability
#       and packs programs, tests and this script with every library that a bare Ubuntu 24.04 with the CUDA
#       toolkit lacks. There, with nothing installed:  tar xf FILE.tar.xz && ./gpu_check.sh run first out
#   scripts/gpu_check.sh pack --sources FILE.tar.xz
#       For a machine on which such a program does not start: the sources, and what building them needs beside
#       a compiler, CMake and the CUDA toolkit. There `scripts/gpu_check.sh run` builds first, offline.
#   scripts/gpu_check.sh run [first|suite|targets|tools|all] [--from DIR] [OUTDIR]
#       first     3 minutes: does it run, is it right, how fast is it; what says most comes first
#       suite     4 minutes: every test for a GPU, the tutorials, gradients, compare, NCCL on one card
#       targets   6 minutes: the speeds that are asked for, beside PyTorch and the floor of products alone
#       tools     8 minutes: compute-sanitizer over the kernels, ncu over one captured step
#       Default: all, into gpu_check_out. --from DIR: an unpacked pack or a build folder; default: the pack that
#       this script lies in, or build/cuda, which is then built for this machine's GPU.
#   scripts/gpu_check.sh run --emulated [STAGE] [OUTDIR]
#       Rehearses this script on the emulated GPU at small sizes, for its own faults. Figures mean nothing.
#   scripts/gpu_check.sh measured [GPU_CHECK.json...]
#       Keeps results under docs/measured and writes docs/measured.md from all that is there.
#
# `run` writes OUTDIR/gpu_check.json and table.txt line by line, as they are found, so what was found stays
# whatever happens, and at the end the logs as one archive. A program that fails, hangs or crashes costs its own
# line: each has a time limit. Stages that are run one by one into the same OUTDIR add up. Exits 1 if a line failed,
# missed its target or was not run. What is not there is skipped, in sight:
#   PyTorch                  LOCKSTEP_TORCH_PYTHON names the Python that has it (default: python3)
#   compute-sanitizer, ncu   from the CUDA toolkit
#   several GPUs             times of all-reduces between them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
if ! command -v python3 >/dev/null; then
  echo "gpu_check.sh: python3 is needed and not in PATH" >&2
  exit 1
fi
exec env PYTHONDONTWRITEBYTECODE=1 python3 "$here/gpu_check/main.py" "$@"
