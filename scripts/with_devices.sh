#!/bin/bash
# Waits for idle GPUs, locks them and becomes a command that sees only these.
#
#   with_devices.sh COUNT TIMEOUT MAX_USED_MIB MAX_UTILIZATION COMMAND...
#
# `lockstep with-devices` checks its flags, then runs this text. TIMEOUT is in seconds, or inf.
#
# There is one lock file per GPU, in a folder of all users. The command inherits the open files, so
# the kernel frees the locks when the last process that it started ends, however it ends.
set -u
count=$1 timeout=$2 max_used=$3 max_utilization=$4
shift 4
folder=${LOCKSTEP_LOCK_DIR:-/tmp/lockstep-gpu-locks}

die() {  # EXIT_CODE MESSAGE
  echo "lockstep: [with-devices] $2" >&2
  exit "$1"
}

plural() {  # NUMBER ONE MANY
  if (($1 == 1)); then echo "$2"; else echo "$3"; fi
}

query() {  # WHAT FIELDS: comma-separated lines without spaces
  nvidia-smi "--query-$1=$2" --format=csv,noheader,nounits 2>&1 | tr -d ' '
  return "${PIPESTATUS[0]}"
}

read_gpus() {
  gpus=$(query gpu index,uuid,memory.used,utilization.gpu) ||
    die 1 "cannot find out which GPUs are idle: nvidia-smi fails: ${gpus//$'\n'/ }"
}

# Sets `visible` to the UUIDs of the GPUs that CUDA_VISIBLE_DEVICES leaves. Its numbers count GPUs as
# nvidia-smi does; CUDA ignores the first entry that names no GPU, and what follows.
find_visible() {
  local all entry found entries
  mapfile -t all < <(cut -d, -f2 <<<"$gpus")
  [[ -n $gpus ]] || all=()
  num_gpus=${#all[@]} visible=("${all[@]}")
  [[ -n ${CUDA_VISIBLE_DEVICES+set} ]] || return 0
  visible=()
  IFS=, read -ra entries <<<"${CUDA_VISIBLE_DEVICES// /}"
  for entry in "${entries[@]}"; do
    if [[ $entry == GPU-* ]]; then
      found=$(printf '%s\n' "${all[@]}" | grep -F -- "$entry")
      [[ $found == GPU-* && $found != *$'\n'* ]] || return 0
    else
      [[ $entry =~ ^[0-9]+$ ]] && ((10#$entry < num_gpus)) || return 0
      found=${all[10#$entry]}
    fi
    visible+=("$found")
  done
}

describe() {  # PID
  local user command
  read -r user command < <(ps -o user=,args= -p "$1" 2>/dev/null)
  echo "pid $1${user:+ ($user: ${command:0:40})}"
}

# Prints why the GPU is busy, and nothing for an idle one. What it does not tell is not held against
# it: then nvidia-smi prints [N/A].
why_busy() {  # UUID USED_MIB UTILIZATION
  local pids
  mapfile -t pids < <(grep "^$1,[0-9]" <<<"$processes" | cut -d, -f2)
  if ((${#pids[@]} > 0)); then
    echo "used by $(describe "${pids[0]}")$( ((${#pids[@]} == 1)) || echo " and $((${#pids[@]} - 1)) more")"
  elif [[ $2 =~ ^[0-9]+$ ]] && (($2 > max_used)); then
    echo "has $2 MiB in use"
  elif [[ $3 =~ ^[0-9]+$ ]] && (($3 > max_utilization)); then
    echo "is $3 % utilised"
  fi
}

# Opens a lock file as the descriptor `lock`. A file of another user's is opened without
# O_CREAT, which kernels refuse in folders like /tmp (fs.protected_regular).
open_lock() {  # FILE
  [[ -e $1 ]] || (umask 0 && : >>"$1") 2>/dev/null
  [[ -f $1 ]] || die 1 "$1 is not a regular file; remove it"
  exec {lock}<"$1" || die 1 "cannot open $1; LOCKSTEP_LOCK_DIR names another folder"
}

# Takes the first idle GPUs that are not locked: all that are asked for, or none, so that two
# programs cannot each hold a part of what the other lacks. Sets `taken`, or `busy`.
try_acquire() {
  local turn locks=() index uuid used utilization reason holder
  taken=() busy=()
  open_lock "$folder/turn.lock"
  turn=$lock
  if ! flock -n "$turn"; then
    exec {turn}<&-
    busy=("another program is choosing")
    return
  fi
  read_gpus
  processes=$(query compute-apps gpu_uuid,pid)
  while IFS=, read -r index uuid used utilization; do
    ((${#taken[@]} < count)) || break
    [[ " ${visible[*]} " == *" $uuid "* ]] || continue
    open_lock "$folder/$uuid.lock"
    if flock -n "$lock"; then
      reason=$(why_busy "$uuid" "$used" "$utilization")
    else
      read -r holder <"$folder/$uuid.lock"
      reason=locked
      [[ -d /proc/${holder:-none} ]] && reason="locked by $(describe "$holder")"
    fi
    if [[ -n $reason ]]; then
      busy+=("GPU $index $reason")
      exec {lock}<&-
    else
      taken+=("$uuid") locks+=("$lock")
    fi
  done <<<"$gpus"
  if ((${#taken[@]} < count)); then
    for lock in "${locks[@]}"; do exec {lock}<&-; done
    taken=()
  fi
  for uuid in "${taken[@]}"; do
    # A hint for those who wait; another user's file may be closed to writing.
    (echo $$ >"$folder/$uuid.lock") 2>/dev/null
  done
  exec {turn}<&-
}

read_gpus
find_visible
if ((count > ${#visible[@]})); then
  hidden=${CUDA_VISIBLE_DEVICES+ under CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES of $num_gpus}
  die 2 "asks for $count $(plural "$count" GPU GPUs), and there $(plural ${#visible[@]} is are) ${#visible[@]}$hidden"
fi
[[ -e $folder ]] || (umask 0 && mkdir -p -m 1777 "$folder") 2>/dev/null
[[ -d $folder ]] || die 1 "$folder is not a folder; LOCKSTEP_LOCK_DIR names another"

start=${EPOCHREALTIME/./}
has_said=
while :; do
  try_acquire
  waited=$((${EPOCHREALTIME/./} - start))
  ((${#taken[@]} == 0)) || break
  reasons=$(printf ', %s' "${busy[@]}")
  if [[ $timeout != inf ]] && awk "BEGIN { exit !($waited >= $timeout * 1e6) }"; then
    die 1 "$count idle $(plural "$count" "GPU was" "GPUs were") not free within $timeout s: ${reasons:2}"
  fi
  if [[ -z $has_said ]]; then
    echo "lockstep: waiting for $count idle $(plural "$count" GPU GPUs): ${reasons:2}" >&2
  fi
  has_said=yes
  sleep 0.3
done
if [[ -n $has_said ]]; then
  awk "BEGIN { printf \"lockstep: got them after %.1f s\n\", $waited / 1e6 }" >&2
fi
CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${taken[*]}")
export CUDA_VISIBLE_DEVICES
exec "$@"
