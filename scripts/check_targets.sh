#!/usr/bin/env bash
# Measures Lockstep beside its peers, both sides in one run on this machine, and prints for each target
# what it asks, the figure and the verdict. Exits 1 if one is missed.
#
#   scripts/check_targets.sh [--rounds N] [step|scaling|all-reduce|processes|overhead|acting|build ...]
#                                             default: all but build, 3 rounds
#
# build measures, in a clean clone of what is committed and without a compiler cache, how long the demo, a
# tutorial and the test suite take from nothing, how long a program takes after an edit, and the size of the
# build folders. It takes a quarter of an hour, so it runs only where it is named.
#
# Sides alternate, and each counts with its best round, so a disturbance has to hit every round of one
# side to change a verdict. Needs nothing beyond the build; peers that are not there are skipped, in sight:
#   PyTorch    the Python named by LOCKSTEP_TORCH_PYTHON (default python3), if it can import torch
#   Open MPI   mpicc and mpirun (Debian: libopenmpi-dev openmpi-bin)
set -euo pipefail
source "$(dirname "$0")/common.sh"

rounds=3
parts=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --rounds) rounds=${2:?} && shift ;;
    step | scaling | all-reduce | processes | overhead | acting | build) parts+=("$1") ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done
[[ ${#parts[@]} -gt 0 ]] || parts=(step scaling all-reduce processes overhead acting)

scripts/setup.sh
if [[ ${parts[*]} != build ]]; then build release lockstep eigen_floor memory_copy overhead; fi
bin=build/release/bin
python=${LOCKSTEP_TORCH_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0

# calculate EXPRESSION: arithmetic on decimals.
calculate() { awk "BEGIN { printf \"%.6g\", $1 }"; }

# least A B: the smaller number; an empty A stands for none yet.
least() { if [[ -z $1 ]]; then echo "$2"; else calculate "($1 < $2) ? $1 : $2"; fi; }

# most A B: the larger one, likewise.
most() { if [[ -z $1 ]]; then echo "$2"; else calculate "($1 > $2) ? $1 : $2"; fi; }

# verdict NAME FIGURE RELATION LIMIT DETAIL: one line; counts misses.
verdict() {
  local result=ok
  if ! awk "BEGIN { exit !($2 $3 $4) }"; then
    result=MISSED
    missed=$((missed + 1))
  fi
  printf '%-58s %9.3f  %s %-6s %-7s %s\n' "$1" "$2" "$3" "$4" "$result" "$5"
}

skip() { printf '%-58s %9s  %-9s %-7s %s\n' "$1" - "" skipped "$2"; }

# after_edit TARGET FILE: seconds from a change of FILE to the linked TARGET.
after_edit() {
  echo "// edited" >>"$2"
  seconds ninja -C build/release "$1"
}

megabytes() { du -sm build/release | cut -f 1; }

check_build() {
  local origin=$PWD limit=120
  git -c safe.directory="$PWD" clone -q "$origin" "$work/clone"
  cd "$work/clone"
  export CCACHE_DISABLE=1
  verdict "scripts/tutorial.sh 04 --fast from nothing (s)" "$(seconds scripts/tutorial.sh 04 --fast)" "<=" 90 ""
  rm -rf build
  seconds scripts/demo.sh >"$work/demo"
  if grep -qs '^CMAKE_CUDA_COMPILER:[^=]*=/' build/release/CMakeCache.txt; then limit=180; fi
  verdict "scripts/demo.sh from nothing (s)" "$(cat "$work/demo")" "<=" $limit ""
  verdict "build folder of the demo (MB)" "$(megabytes)" "<=" 200 ""
  verdict "scripts/test.sh after it (s)" "$(seconds scripts/test.sh)" "<=" 300 ""
  verdict "build folder of everything (MB)" "$(megabytes)" "<=" 500 ""
  verdict "after an edit: 04_split_batch.cpp, its program (s)" \
    "$(after_edit 04_split_batch tutorials/04_split_batch.cpp)" "<=" 6 ""
  verdict "after an edit: tools/commands/train.cpp, lockstep (s)" "$(after_edit lockstep tools/commands/train.cpp)" "<=" 10 ""
  verdict "after an edit: engine/plan/ring.cpp, lockstep (s)" "$(after_edit lockstep engine/plan/ring.cpp)" "<=" 8 ""
  verdict "after an edit: engine/tensor/tensor.h, lockstep (s)" "$(after_edit lockstep engine/tensor/tensor.h)" "<=" 45 ""
  cd "$origin"
}


our_step() { # THREADS BATCH MODEL [DATASET] -> microseconds
  "$bin/lockstep" bench step --device cpu --model "$3" ${4:+--dataset "$4"} --batch "$2" --threads-per-device "$1" \
    --json - 2>/dev/null | awk -F'[:,]' '/median_step_seconds/ { printf "%.2f", $2 * 1e6 }'
}
ours_step() { # THREADS BATCH SIZES... -> microseconds
  our_step "$1" "$2" "mlp:$(IFS=-; echo "${*:3}")"
}
floor_step() { "$bin/eigen_floor" "$@" | awk '{ print $3 }'; }
torch_step() { "$python" tests/bench/torch_step.py "$@"; }
has_torch() { "$python" -c 'import torch' >/dev/null 2>&1; }

check_step() {
  local spec threads ours floor torch round batch need_torch need_floor
  has_torch || skip "training step beside PyTorch" "$python cannot import torch"
  for spec in "64 784 256 128 10" "256 784 256 128 10" "1024 784 256 128 10" "8192 784 256 128 10" \
    "1024 784 2048 2048 10"; do
    read -r -a sizes <<<"$spec"
    batch=${sizes[0]}
    need_torch=1.0 need_floor=1.05
    if [[ $batch == 64 ]]; then need_torch=2 need_floor=1.15; fi
    if [[ $batch == 256 ]]; then need_torch=1.2; fi
    for threads in 1 2; do
      ours='' floor='' torch=''
      for ((round = 0; round < rounds; round++)); do
        ours=$(least "$ours" "$(ours_step "$threads" "${sizes[@]}")")
        floor=$(least "$floor" "$(floor_step "$threads" "${sizes[@]}")")
        if has_torch; then torch=$(least "$torch" "$(torch_step "$threads" "${sizes[@]}")"); fi
      done
      local name="mlp ${spec#* } batch $batch, $threads thread(s)"
      verdict "$name: ours / floor" "$(calculate "$ours / $floor")" "<=" "$need_floor" "$ours us / $floor us"
      if [[ -n $torch ]]; then
        verdict "$name: PyTorch / ours" "$(calculate "$torch / $ours")" ">=" "$need_torch" "$torch us / $ours us"
      fi
    done
  done
}

# two_at_once COMMAND...: the larger one of the microseconds that two of it print: a step of two ranks ends with the
# slower one.
two_at_once() {
  "$@" >"$work/a" &
  "$@" >"$work/b"
  wait
  most "$(cat "$work/a")" "$(cat "$work/b")"
}

# The step that two half batches reach when they run at once: what two devices could do at best. Of
# the floor and of ours, the faster one, so that a fast product does not hide a slow all-reduce.
ceiling_step() {
  least "$(two_at_once floor_step 1 512 784 2048 2048 10)" "$(two_at_once ours_step 1 512 784 2048 2048 10)"
}

# The median step of two devices, one thread each, from the run file's breakdown.
two_device_step() { # dp|ddp -> microseconds
  "$bin/lockstep" train --device cpu --parallel "$1" --devices 2 --threads-per-device 1 \
    --model mlp:784-2048-2048-10 --dataset synthetic:4096x784x10 --batch 1024 --steps 24 --lr 0.01 \
    --json "$work/run.json" >/dev/null
  awk -F'[:,]' '/"breakdown_seconds"/ { inside = 1; next } inside && /}/ { exit } inside { total += $2 }
    END { printf "%.1f", total * 1e6 }' "$work/run.json"
}

check_scaling() {
  local mode ours ceiling round need
  for mode in ddp dp; do
    need=0.95
    if [[ $mode == dp ]]; then need=0.90; fi
    ours='' ceiling=''
    for ((round = 0; round < rounds; round++)); do
      ceiling=$(least "$ceiling" "$(ceiling_step)")
      ours=$(least "$ours" "$(two_device_step "$mode")")
    done
    verdict "wide net, batch 1024, $mode on 2 devices: share of ceiling" "$(calculate "$ceiling / $ours")" \
      ">=" "$need" "ceiling $ceiling us, ours $ours us"
  done
}

# fastest FILE SIZE: the smallest time in the lines of this size.
fastest() { awk -v s="$2" '$1 == s { print $2 }' "$1" | sort -g | head -n 1; }

# has_mpi: builds Open MPI's side, where Open MPI is.
has_mpi() {
  command -v mpicc >/dev/null && command -v mpirun >/dev/null || return 1
  [[ -x $work/mpi_all_reduce ]] || mpicc -O3 -o "$work/mpi_all_reduce" tests/bench/mpi_all_reduce.c
}
open_mpi() { # RANKS SIZES... -> "size ... time ..." lines
  mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -np "$1" "$work/mpi_all_reduce" "${@:2}" \
    2>"$work/mpi.log" || { cat "$work/mpi.log" >&2 && return 1; }
}
torch_ranks() { # RANKS ARGUMENTS...
  "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" tests/bench/torch_ddp.py "${@:2}" \
    2>"$work/torch.log" || { cat "$work/torch.log" >&2 && return 1; }
}

check_all_reduce() {
  local size round peer ours sizes=(16384 262144 4194304 67108864)
  has_mpi || { skip "all-reduce beside Open MPI" "no mpicc and mpirun here" && return; }
  for ((round = 0; round < rounds; round++)); do
    open_mpi 2 "${sizes[@]}" >>"$work/mpi"
    "$bin/lockstep" bench all-reduce --devices 2 -b 16K -e 64M -f 4 -n 50 -w 10 >>"$work/own"
  done
  for size in "${sizes[@]}"; do
    peer=$(fastest "$work/mpi" "$size")
    ours=$(fastest "$work/own" "$size")
    verdict "all-reduce of $size bytes, 2 threads: busbw / Open MPI's" "$(calculate "$peer / $ours")" ">=" 1 \
      "$ours us, Open MPI $peer us"
  done
}

# ours_between KIND TRANSPORT RANKS: the lines of all sizes, 400 all-reduces of a small one and 30 of a large one.
ours_between() {
  local range
  for range in "1K -e 1M -n 400" "4M -e 64M -n 30"; do
    # shellcheck disable=SC2086  # several flags
    "$bin/lockstep" bench all-reduce --device cpu --ranks "$1" --transport "$2" --devices "$3" -f 4 -w 5 -b $range
  done
}

# beside NAME PEER OURS NEED PEERS_NAME: a verdict on a peer's time over ours.
beside() { verdict "$1: $5 / ours" "$(calculate "$2 / $3")" ">=" "$4" "$3 us, $5 $2 us"; }

check_process_all_reduce() {
  local sizes=(1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864) size round ranks name ours need copy=''
  has_mpi || skip "all-reduce between processes beside Open MPI" "no mpicc and mpirun here"
  has_torch || skip "all-reduce between processes beside gloo" "$python cannot import torch"
  for ((round = 0; round < rounds; round++)); do
    for ranks in 2 4 8; do
      ours_between processes shm "$ranks" >>"$work/own.shm.$ranks"
      if has_mpi; then open_mpi "$ranks" "${sizes[@]}" >>"$work/mpi.$ranks"; fi
      if has_torch; then torch_ranks "$ranks" all-reduce "${sizes[@]}" >>"$work/gloo.$ranks"; fi
    done
    ours_between threads auto 2 >>"$work/own.threads.2"
    ours_between processes tcp 2 >>"$work/own.tcp.2"
    copy=$(most "$copy" "$("$bin/memory_copy" 2 67108864)")
  done
  for ranks in 2 4 8; do
    need=1.2
    if [[ $ranks == 2 ]]; then need=1.5; fi
    for size in "${sizes[@]}"; do
      name="all-reduce of $size bytes, $ranks processes"
      ours=$(fastest "$work/own.shm.$ranks" "$size")
      if has_mpi; then beside "$name" "$(fastest "$work/mpi.$ranks" "$size")" "$ours" "$need" "Open MPI"; fi
      if has_torch; then beside "$name" "$(fastest "$work/gloo.$ranks" "$size")" "$ours" 5 gloo; fi
    done
    # Each rank's values are read once and written once.
    verdict "$name: share of a copy's bandwidth" "$(calculate "2e-3 * $ranks * $size / $ours / $copy")" ">=" 0.8 \
      "$ours us, two threads copy $copy GB/s, read and written"
  done
  for size in "${sizes[@]}"; do
    ours=$(fastest "$work/own.shm.2" "$size")
    name="all-reduce of $size bytes, 2 ranks: processes / threads"
    if [[ $size -ge 16384 ]]; then
      verdict "$name" "$(calculate "$ours / $(fastest "$work/own.threads.2" "$size")")" "<=" 1.15 "$ours us"
    fi
    if has_torch && [[ $size -ge 4194304 ]]; then
      beside "all-reduce of $size bytes, 2 processes over TCP" "$(fastest "$work/gloo.2" "$size")" \
        "$(fastest "$work/own.tcp.2" "$size")" 1.5 gloo
    fi
  done
}

# The median step of DDP between two processes, one thread each.
two_process_step() { # MODEL DATASET BATCH -> microseconds
  "$bin/lockstep" train --device cpu --parallel ddp --ranks processes --devices 2 --threads-per-device 1 \
    --model "$1" --dataset "$2" --batch "$3" --steps 24 --lr 0.01 --json "$work/run.json" >/dev/null
  awk -F'[:,]' '/"step_seconds"/ { printf "%.1f", $2 * 1e6; exit }' "$work/run.json"
}

check_process_ddp() {
  local sizes name ours ceiling torch round
  for sizes in "784 256 128 10" "784 2048 2048 10"; do
    ours='' ceiling='' torch=''
    for ((round = 0; round < rounds; round++)); do
      ours=$(least "$ours" "$(two_process_step "mlp:${sizes// /-}" synthetic:4096x784x10 1024)")
      if [[ $sizes == *2048* ]]; then ceiling=$(least "$ceiling" "$(ceiling_step)"); fi
      # shellcheck disable=SC2086
      if has_torch; then torch=$(least "$torch" "$(torch_ranks 2 step 1024 $sizes)"); fi
    done
    name="mlp $sizes, batch 1024, ddp of 2 processes"
    if [[ $ceiling ]]; then
      verdict "$name: share of ceiling" "$(calculate "$ceiling / $ours")" ">=" 0.97 \
        "ceiling $ceiling us, ours $ours us"
    fi
    if [[ $torch ]]; then
      beside "$name" "$torch" "$ours" 1.1 PyTorch
    else
      skip "$name: PyTorch / ours" "$python cannot import torch"
    fi
  done
  ours='' ceiling=''
  for ((round = 0; round < rounds; round++)); do
    ours=$(least "$ours" "$(two_process_step lenet synthetic:4096x28x28x1x10 256)")
    ceiling=$(least "$ceiling" "$(two_at_once our_step 1 128 lenet synthetic:4096x28x28x1x10)")
  done
  verdict "lenet, batch 256, ddp of 2 processes: share of ceiling" "$(calculate "$ceiling / $ours")" ">=" 0.97 \
    "ceiling $ceiling us, ours $ours us"
}

# seconds COMMAND...: its wall time.
seconds() {
  local start end
  start=$(date +%s.%N)
  "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2 && return 1; }
  end=$(date +%s.%N)
  calculate "$end - $start"
}

check_process_starts() {
  local round eight='' many=''
  for ((round = 0; round < rounds; round++)); do
    eight=$(least "$eight" "$(seconds "$bin/lockstep" bench all-reduce --device cpu --ranks processes --devices 8 \
      -b 4 -e 4 -n 1 -w 0)")
    many=$(least "$many" "$(seconds "$bin/lockstep" train --device cpu --ranks processes --parallel ddp \
      --devices 64 --batch 64 --steps 1)")
  done
  verdict "8 processes: start, first all-reduce and stop (s)" "$eight" "<" 0.5 ""
  verdict "64 processes: start, all-reduce, train a step and stop (s)" "$many" "<=" 30 ""
}

check_overhead() {
  local op span spans step
  "$bin/overhead" >"$work/overhead"
  op=$(awk '$1 == "op" { print $2 }' "$work/overhead")
  span=$(awk '$1 == "span_off" { print $2 }' "$work/overhead")
  spans=$(awk '$1 == "spans" { print $2 }' "$work/overhead")
  step=$(ours_step 1 64 784 256 128 10)
  verdict "overhead of an operation, forward and backward (us)" "$(calculate "$op / 1000")" "<" 1 ""
  verdict "tracing off, share of the small step at 64 (%)" "$(calculate "100 * $spans * $span / 1000 / $step")" \
    "<" 1 "$spans spans of $span ns, step $step us"
}

# agree NAME MEAN LARGEST KIND KIND FILE...: how far the steps of two kinds of rows are apart, of the same mode and
# devices, in run files named *-LABEL.json of one label.
agree() {
  read -r -a found < <("$python" - "${@:4}" <<'PYTHON'
import json, sys
from pathlib import Path

first, second, *files = sys.argv[1:]
steps = {}
for file in map(Path, files):
    for row in json.loads(file.read_text())["rows"]:
        key = f"{file.stem.partition('-')[2]}, {row['mode']} x {row['devices']}"
        steps.setdefault(key, {})[row["kind"]] = row["step_seconds"]
apart = {key: 100 * abs(of[second] / of[first] - 1) for key, of in steps.items() if {first, second} <= set(of)}
largest = max(apart, key=apart.get)
print(sum(apart.values()) / len(apart), apart[largest], f"{len(apart)} rows; {largest}")
PYTHON
  )
  verdict "$1: mean difference (%)" "${found[0]}" "<=" "$2" "${found[*]:2}"
  verdict "$1: largest difference (%)" "${found[1]}" "<=" "$3" "${found[*]:2}"
}

# Steps of machines that are acted out beside those that are predicted, of five nets on two machines.
check_acting() {
  local topology net number=0
  for topology in titanx-pascal-dual-root-8 hgx-h200-8; do
    while read -r net; do
      number=$((number + 1))
      # shellcheck disable=SC2086  # several flags
      "$bin/lockstep" compare --act-as "$topology" --predict --modes dp,ddp --devices 2,4,8 $net \
        --json "$work/acting-$number.json" >/dev/null
    done <<'NETS'
--model mlp:64-256-10 --batch 64
--model mlp:784-256-128-10 --dataset synthetic:4096x784x10 --batch 256 --steps 8
--model mlp:784-1024-1024-10 --dataset synthetic:512x784x10 --batch 128 --steps 6
--model mlp:64-64-64-64-64-64-64-10 --dataset synthetic:8192x64x10 --batch 1024 --steps 8
--model resnet18:8 --batch 64 --steps 6
NETS
  done
  agree "acted out and predicted steps" 5 10 acted predicted "$work"/acting-*.json
}

printf '%-58s %9s  %-9s %-7s %s\n' target figure asked verdict detail
for part in "${parts[@]}"; do
  case $part in
    step) check_step ;;
    scaling) check_scaling ;;
    all-reduce) check_all_reduce ;;
    processes)
      check_process_all_reduce
      check_process_ddp
      check_process_starts
      ;;
    overhead) check_overhead ;;
    acting) check_acting ;;
    build) check_build ;;
  esac
done
if [[ $missed -gt 0 ]]; then
  echo "$missed targets missed"
  exit 1
fi
echo "all targets met"
