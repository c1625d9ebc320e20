#!/usr/bin/env bash
# Checks Lockstep on a machine with an NVIDIA GPU, in stages, from programs that were built elsewhere.
#
#   scripts/gpu_check.sh pack FILE.tar.gz [--arch 90]
#       Needs the CUDA toolkit, but no GPU: builds the cuda preset for one compute capability and packs programs, tests
#       and this script with every library that a bare Ubuntu 24.04 with the CUDA toolkit lacks. There, with nothing
#       installed but python3:  tar xf FILE.tar.gz && ./gpu_check.sh run first out
#   scripts/gpu_check.sh run [first|targets|suite|all] [--from DIR] [OUTDIR]
#       first     3 minutes: does it run, is it right, how fast is it beside PyTorch
#       targets   7 minutes: the wide net beside SGEMM, LeNet, ResNet-18 and GPTs beside PyTorch (eager, graph,
#                 compiled), all-reduce among devices and between GPUs, LeNet and ResNet-18 without cuDNN
#       suite     6 minutes: every test for a GPU, the tutorials, compare, NCCL on one card, the sanitizer
#       Default: all, into gpu_check_out. --from DIR: an unpacked pack; default: where this script lies, or build/cuda.
#   scripts/gpu_check.sh run --emulated [STAGE] [OUTDIR]
#       Rehearses this script on the emulated GPU at small sizes. Its figures mean nothing.
#   scripts/gpu_check.sh measured [GPU_CHECK.json...]
#       Keeps results under docs/measured and writes docs/measured.md from all that is there.
# `run` writes OUTDIR/gpu_check.json line by line, and logs beside it. A program that fails, hangs or crashes costs its
# own line. Exits 1 if a line failed, missed its target or was not run. LOCKSTEP_TORCH_PYTHON: the Python with PyTorch.
set -euo pipefail
if [[ ${1:-} == -h || ${1:-} == --help ]]; then exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; fi
if ! command -v python3 >/dev/null; then
  echo "gpu_check.sh: python3 is not in PATH; install it (apt install python3)" >&2
  exit 1
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec env PYTHONDONTWRITEBYTECODE=1 python3 "$here/gpu_check/main.py" "$@"
