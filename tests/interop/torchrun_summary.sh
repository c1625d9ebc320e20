#!/bin/sh
# torchrun's summary of a job that fails holds our error line, since it finds it in the file that it
# names by TORCHELASTIC_ERROR_FILE.
#
#   torchrun_summary.sh LOCKSTEP      exits 77 where no Python with PyTorch is found
set -eu
lockstep=$1
python=${LOCKSTEP_TORCH_PYTHON:-python3}
if ! "$python" -c 'import torch.distributed.run' 2>/dev/null; then
  echo "skipped: $python has no PyTorch; set LOCKSTEP_TORCH_PYTHON to a Python that has"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if "$python" -m torch.distributed.run --standalone --no-python --nproc-per-node 2 \
  "$lockstep" train --parallel ddp --dataset digits --epochs 1 --init "$folder/none.safetensors" >"$folder/out" 2>&1; then
  echo "the job did not fail:"
  cat "$folder/out"
  exit 1
fi
sed -n '/^Root Cause/,$p' "$folder/out" | tee "$folder/summary"
grep -q 'traceback : lockstep: .*none.safetensors' "$folder/summary" || {
  echo "torchrun's summary does not hold our error; all that it said:"
  cat "$folder/out"
  exit 1
}
