#!/usr/bin/env bash
# Checks Lockstep on a machine with an NVIDIA GPU, in at most eight minutes: builds the cuda preset for this
# GPU, runs the test suite on it, the kernel tests under compute-sanitizer, every tutorial, and measures
# the targets beside PyTorch and the floor. Prints a table last; exits 1 if anything failed.
#
#   scripts/gpu_check.sh [OUTDIR]     default: gpu_check
#
# Writes OUTDIR/gpu_check.json (every line of the table), and the logs of what ran. What is not there is
# skipped, in sight:
#   compute-sanitizer    from the CUDA toolkit
#   PyTorch              the Python named by LOCKSTEP_TORCH_PYTHON (default python3), if it has torch with CUDA
#   several GPUs         times of all-reduces between them
set -euo pipefail
source "$(dirname "$0")/common.sh"

case ${1:-} in
  -h | --help) usage && exit 0 ;;
  -*) usage_error "unknown argument '$1'" ;;
esac
out=${1:-gpu_check}
mkdir -p "$out"
out=$(cd "$out" && pwd)
table=$out/table.txt
: >"$table"
python=${LOCKSTEP_TORCH_PYTHON:-python3}
bin=build/cuda/bin
missed=0

# line NAME FIGURE ASKED VERDICT DETAIL: one line of the table, shown at once and kept.
line() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$table"
  printf '%-58s %10s  %-9s %-7s %s\n' "$@"
}
calculate() { awk "BEGIN { printf \"%.6g\", $1 }"; }
# verdict NAME FIGURE RELATION LIMIT DETAIL: counts misses; an empty figure is one.
verdict() {
  local result=ok
  if [[ -z $2 ]] || ! awk "BEGIN { exit !($2 $3 $4) }"; then
    result=MISSED
    missed=$((missed + 1))
  fi
  line "$1" "$(printf '%.4g' "${2:-0}")" "$3 $4" "$result" "$5"
}
skip() { line "$1" - "" skipped "$2"; }

# passes NAME LOG COMMAND...: a line that says whether the command succeeded.
passes() {
  local name=$1 log=$out/$2 start=$SECONDS
  shift 2
  if "$@" >"$log" 2>&1 </dev/null; then
    line "$name" "" "" ok "$((SECONDS - start)) s"
  else
    missed=$((missed + 1))
    line "$name" "" "" FAILED "see $log"
    tail -n 15 "$log" >&2
  fi
}

build_for_this_gpu() {
  scripts/setup.sh
  echo "lockstep: configuring build/cuda for this GPU" >&2
  quietly "configuring build/cuda" cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native
  build cuda
}

run_suite() {
  ctest --preset cuda -j "$(nproc)" -L gpu -LE '^slow$'
}

check_suite() {
  passes "test suite on the GPU" tests.log run_suite
  local skipped
  skipped=$(grep -c '\*\*\*Skipped' "$out/tests.log" || true)
  line "tests on the GPU: $(grep -Eo '[0-9]+% tests passed, .*' "$out/tests.log" || echo none)" "" "" "" \
    "$skipped skipped"
}

check_sanitizers() {
  local tool
  if ! command -v compute-sanitizer >/dev/null; then
    skip "compute-sanitizer" "not in PATH"
    return
  fi
  for tool in memcheck racecheck; do
    # cuBLAS's own kernels are left out: memcheck reports reads in them that are none of ours.
    passes "hand-written kernels under compute-sanitizer $tool" "$tool.log" \
      timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/cuda_kernels_tests"
  done
}

check_tutorials() {
  local program
  for program in "$bin"/[0-9][0-9]_*; do
    passes "tutorial $(basename "$program") --device cuda" "$(basename "$program").log" \
      "$program" --device cuda --fast
  done
}

# json_number KEY: the first number of that key on standard input.
json_number() { awk -F'[:,]' -v key="\"$1\"" '$1 ~ key { printf "%.10g", $2; exit }'; }

# ours PRECISION BATCH MODEL [--graph] -> microseconds of a step, and the nodes of its graph
ours() {
  "$bin/lockstep" bench step --device cuda --matmul-precision "$1" --batch "$2" --model "$3" "${@:4}" \
    --json "$out/step.json" >/dev/null
  calculate "1e6 * $(json_number median_step_seconds <"$out/step.json")"
}
graph_nodes() { json_number graph_nodes <"$out/step.json"; }

has_torch() { "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; }

# at_least NAME PEER OURS LIMIT: the peer's time over ours.
at_least() { verdict "$1" "$(calculate "$2 / $3")" ">=" "$4" "$2 us / $3 us"; }

check_small_net() {
  local precision batch graph eager products count nodes torch
  for precision in highest high; do
    for batch in 64 256 1024 8192; do
      local name="mlp 784-256-128-10, batch $batch, $precision"
      eager=$(ours "$precision" "$batch" mlp:784-256-128-10)
      graph=$(ours "$precision" "$batch" mlp:784-256-128-10 --graph)
      nodes=$(graph_nodes)
      read -r products count < <("$bin/gpu_floor" "$precision" "$batch" 784 256 128 10 |
        awk '/^products/ { print $2, $3 }')
      verdict "$name: graph / floor" "$(calculate "$graph / ($products + 0.7 * ($nodes - $count))")" "<=" 1.4 \
        "$graph us, $count products $products us, $nodes nodes"
      if ! has_torch; then continue; fi
      torch=$("$python" tests/bench/torch_cuda_step.py "$precision" "$batch" 784 256 128 10)
      local torch_eager torch_graph
      torch_eager=$(awk '/^eager/ { print $2 }' <<<"$torch")
      torch_graph=$(awk '/^graph/ { print $2 }' <<<"$torch")
      local need=2
      if [[ $batch == 8192 && $precision == highest ]]; then need=1.3; fi
      at_least "$name: PyTorch graph / ours" "$torch_graph" "$graph" "$need"
      if [[ $batch != 8192 ]]; then
        at_least "$name: PyTorch eager / ours without a graph" "$torch_eager" "$eager" 5
      fi
      if [[ $batch == 64 || ($precision == high && $batch != 8192) ]]; then
        at_least "$name: PyTorch eager / our graph" "$torch_eager" "$graph" 20
      fi
    done
  done
  has_torch || skip "steps beside PyTorch" "$python has no torch with CUDA"
}

check_wide_net() {
  local model=mlp:784-4096-4096-4096-10 step rate torch
  step=$(ours highest 4096 $model --graph)
  local gflops
  gflops=$(json_number gflops <"$out/step.json")
  rate=$("$bin/gpu_floor" highest 4096 784 4096 4096 4096 10 | awk '/^sgemm/ { print $2 }')
  verdict "wide net, batch 4096, highest: share of the SGEMM rate" "$(calculate "$gflops / 1e3 / $rate")" ">=" \
    0.95 "$step us, $gflops GFLOP/s of $rate TFLOP/s"
  if ! has_torch; then return; fi
  step=$(ours high 4096 $model --graph)
  torch=$("$python" tests/bench/torch_cuda_step.py high 4096 784 4096 4096 4096 10 | awk '/^graph/ { print $2 }')
  at_least "wide net, batch 4096, high: PyTorch graph / ours" "$torch" "$step" 1.25
}

check_epoch() {
  local step epoch torch
  step=$(ours highest 1024 mlp:784-256-128-10 --graph)
  "$bin/lockstep" train --device cuda --graph --dataset synthetic:60000x784x10 --model mlp:784-256-128-10 \
    --batch 1024 --epochs 6 --lr 0.01 --json "$out/epoch.json" >"$out/epoch.log"
  epoch=$(awk '/"epoch_seconds"/ { inside = 1; next } inside && /]/ { exit }
    inside { gsub(",", ""); if (++n > 1 && (best == "" || $1 < best)) best = $1 } END { printf "%.2f", best * 1e6 }' \
    "$out/epoch.json")
  verdict "epoch of 60,000 rows from host memory / 59 graph steps" "$(calculate "$epoch / (59 * $step)")" "<=" 1.1 \
    "$epoch us, step $step us"
  if has_torch; then
    torch=$("$python" tests/bench/torch_cuda_epoch.py 60000 1024 784 256 128 10)
    at_least "the same epoch: PyTorch eager / ours" "$torch" "$epoch" 10
  fi
}

# The step of `lockstep train` in microseconds, without data loading to speak of.
train_step() {
  "$bin/lockstep" train --device cuda --virtual-devices 'cuda:0*4' --dataset synthetic:65536x784x10 \
    --model mlp:784-256-128-10 --batch 8192 --epochs 12 --lr 0.01 --json "$out/train.json" "$@" >"$out/train.log"
  calculate "1e6 * $(json_number step_seconds <"$out/train.json")"
}

check_logical_devices() {
  local one four time
  one=$(train_step)
  four=$(train_step --parallel ddp --devices 4)
  verdict "DDP on 4 logical devices, batch 8192 / one device" "$(calculate "$four / $one")" "<=" 1.5 \
    "$four us / $one us"
  "$bin/lockstep" bench all-reduce --device cuda --virtual-devices 'cuda:0*4' --devices 4 -b 1M -e 1M -n 200 -c \
    --json "$out/all_reduce.json" >"$out/all_reduce.log"
  time=$(json_number time_us <"$out/all_reduce.json")
  verdict "all-reduce of 1 MiB among 4 logical devices (us)" "$time" "<=" 20 ""
}

check_gradients() {
  local precision
  for precision in highest high medium; do
    passes "gradients beside Eigen in double, $precision" "gradients_$precision.log" \
      "$bin/lockstep" check-gradients --device cuda --matmul-precision "$precision"
  done
}

check_compare() {
  passes "compare: dp and ddp on 1, 2, 4, 8 logical devices" compare.log \
    "$bin/lockstep" compare --device cuda --virtual-devices 'cuda:0*8' --dataset digits --model mlp:64-1024-1024-10 \
    --modes dp,ddp --devices 1,2,4,8 --epochs 2 --json "$out/compare.json"
}

check_several_gpus() {
  local num_gpus count size
  num_gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
  if [[ $num_gpus -lt 2 ]]; then
    skip "all-reduces between GPUs" "$num_gpus GPU here"
    return
  fi
  for count in 2 4 8; do
    if [[ $count -gt $num_gpus ]]; then continue; fi
    "$bin/lockstep" bench all-reduce --device cuda --devices $count -b 64K -e 64M -f 32 -c --json - \
      2>"$out/gpus_$count.log" >"$out/gpus_$count.json"
    for size in 65536 2097152 67108864; do
      line "all-reduce of $size bytes between $count GPUs (us)" \
        "$(awk -v s=$size '$1 == s { print $6 }' "$out/gpus_$count.log")" "" measured ""
    done
  done
}

write_json() {
  awk -F'\t' 'BEGIN { print "{\"schema\": \"lockstep.gpu_check/1\", \"rows\": [" }
    { gsub(/["\\]/, "\\\\&"); printf "%s  {\"name\": \"%s\", \"figure\": \"%s\", \"asked\": \"%s\", \"verdict\": \"%s\", \"detail\": \"%s\"}",
      NR > 1 ? ",\n" : "", $1, $2, $3, $4, $5 }
    END { print "\n]}" }' "$table" >"$out/gpu_check.json"
}

build_for_this_gpu
"$bin/lockstep" devices | tee "$out/devices.log"
check_suite
check_sanitizers
check_tutorials
check_gradients
check_compare
check_small_net
check_wide_net
check_epoch
check_logical_devices
check_several_gpus
write_json

printf '\n%-58s %10s  %-9s %-7s %s\n' check figure asked verdict detail
while IFS=$'\t' read -r -a cells; do printf '%-58s %10s  %-9s %-7s %s\n' "${cells[@]}"; done \
  < <(awk -F'\t' -v OFS='\t' '{ for (i = 1; i <= 5; i++) if ($i == "") $i = " "; print }' "$table")
echo "written: $out/gpu_check.json ($SECONDS s)"
if [[ $missed -gt 0 ]]; then
  echo "$missed checks failed or targets missed"
  exit 1
fi
echo "all checks passed"
