#!/bin/sh
# Runs a Python script with the Python that has PyTorch. Exits 77 where there is no such Python.
set -eu
python=${LOCKSTEP_TORCH_PYTHON:-python3}
command -v "$python" >/dev/null || {
  echo "skipped: there is no $python; set LOCKSTEP_TORCH_PYTHON to a Python with PyTorch"
  exit 77
}
exec "$python" "$@"
