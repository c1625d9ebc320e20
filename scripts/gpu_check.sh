#!/usr/bin/env bash
# Checks Lockstep on a machine with an NVIDIA GPU, in stages, from programs that were built elsewhere.
#
#   scripts/gpu_check.sh pack FILE.tar.gz [--arch 90]
#       Needs the CUDA toolkit, but no GPU: builds the cuda preset for one compute capability and packs programs, tests
#       and this script with every library that a bare Ubuntu 24.04 with the CUDA toolkit lacks. There, with nothing
#       installed but python3:  tar xf FILE.tar.gz && ./gpu_check.sh run first out
#   scripts/gpu_check.sh run [first|suite|targets|all] [--from DIR] [OUTDIR]
#       first     3 minutes: does it run, is it right, how fast is it; what says most comes first
#       suite     6 minutes: every test for a GPU, the tutorials, gradients, compare, NCCL on one card, the sanitizer
#       targets   6 minutes: the speeds that are asked for, beside PyTorch and the floor of products alone
#       Default: all, into gpu_check_out. --from DIR: an unpacked pack or a build folder; default: the pack that this
#       script lies in, or build/cuda, which is then built for this machine's GPU.
#   scripts/gpu_check.sh run --emulated [STAGE] [OUTDIR]
#       Rehearses this script on the emulated GPU at small sizes. Its figures mean nothing.
#   scripts/gpu_check.sh measured [GPU_CHECK.json...]
#       Keeps results under docs/measured and writes docs/measured.md from all that is there.
#
# `run` writes OUTDIR/gpu_check.json and table.txt line by line, and at the end the logs as one archive. A program that
# fails, hangs or crashes costs its own line. Stages run one by one into the same OUTDIR add up. Exits 1 if a line
# failed, missed its target or was not run. PyTorch, compute-sanitizer and ncu are skipped, in sight, where they are
# not found; LOCKSTEP_TORCH_PYTHON names the Python that has PyTorch.
set -euo pipefail
case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
if ! command -v python3 >/dev/null; then
  echo "gpu_check.sh: python3 is not in PATH; install it (apt install python3)" >&2
  exit 1
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec env PYTHONDONTWRITEBYTECODE=1 python3 "$here/gpu_check/main.py" "$@"
