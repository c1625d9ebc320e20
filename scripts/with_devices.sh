#!/bin/bash
# Waits for idle GPUs, locks them and becomes a command that sees only these.
#
#   with_devices.sh COUNT TIMEOUT MAX_USED_MIB MAX_UTILIZATION GPUS COMMAND...
#
# `lockstep with-devices` checks its flags, then runs this text. TIMEOUT is in seconds, or inf. GPUS are the UUIDs of the
# GPUs to choose from, separated by spaces.
#
# There is one lock file per GPU, in a folder of all users. The command inherits the open files, so the kernel frees the
# locks when the last process that it started ends, however it ends.
set -u
count=$1 timeout=$2 max_used=$3 max_utilization=$4 visible=$5
shift 5
folder=${LOCKSTEP_LOCK_DIR:-/tmp/lockstep-gpu-locks}

die() {  # MESSAGE
  echo "lockstep: [with-devices] $1" >&2
  exit 1
}

# Comma-separated lines. A field that this driver does not know is replaced by the first, which is no number.
query() {  # WHAT FIELDS
  local lines status field
  lines=$(timeout -k 1 10 nvidia-smi "--query-$1=$2" --format=csv,noheader,nounits 2>&1)
  status=$?
  ((status != 124)) || lines="no answer within 10 s"
  field=$(sed -n "s/^Field [\"']\([a-z._]*\)[\"'] is not a valid field.*/\1/p" <<<"$lines" | head -1)
  if [[ -n $field && ",${2#*,}," == *",$field,"* ]]; then
    query "$1" "${2%%,*},$(sed "s/\b$field\b/${2%%,*}/" <<<"${2#*,}")"
    return
  fi
  sed 's/, */,/g' <<<"$lines"
  return $status
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

# Takes the first idle GPUs that are not locked: all that are asked for, or none, so that two programs cannot each hold
# a part of what the other lacks. Sets `taken`, or `busy`.
try_acquire() {
  local turn locks=() gpus index uuid used utilization reason holder
  taken=() busy=()
  exec {turn}<"$folder"
  if ! flock -w 5 "$turn"; then
    exec {turn}<&-
    busy=("another program is choosing")
    return
  fi
  # With rows, an exit code other than 0 is a warning, such as that an infoROM is corrupted.
  gpus=$(query gpu uuid,index,memory.used,utilization.gpu) || grep -q '^GPU-' <<<"$gpus" ||
    die "nvidia-smi fails: ${gpus//$'\n'/ }"
  processes=$(query compute-apps gpu_uuid,pid)
  while IFS=, read -r uuid index used utilization; do
    ((${#taken[@]} < count)) || break
    [[ -n $uuid && " $visible " == *" $uuid "* ]] || continue
    # A file of another user's is opened without O_CREAT, which kernels refuse in folders like /tmp
    # (fs.protected_regular).
    [[ -e $folder/$uuid.lock ]] || (umask 0 && : >>"$folder/$uuid.lock")
    exec {lock}<"$folder/$uuid.lock" || die "cannot open $folder/$uuid.lock; LOCKSTEP_LOCK_DIR names another folder"
    if flock -n "$lock"; then
      reason=$(why_busy "$uuid" "$used" "$utilization")
    else
      read -r holder <"$folder/$uuid.lock"
      reason="locked by $(describe "${holder:-unknown}")"
    fi
    if [[ -n $reason ]]; then
      busy+=("GPU $index $reason")
      exec {lock}<&-
    else
      taken+=("$uuid") locks+=("$lock")
    fi
  done <<<"$gpus"
  if ((${#taken[@]} + ${#busy[@]} == 0)); then busy=("nvidia-smi lists none of them"); fi
  if ((${#taken[@]} < count)); then
    for lock in "${locks[@]}"; do exec {lock}<&-; done
    taken=()
  fi
  for uuid in "${taken[@]}"; do
    (echo $$ >"$folder/$uuid.lock") 2>/dev/null  # for those who wait; another user's file may be closed to writing
  done
  exec {turn}<&-
}

[[ -e $folder ]] || (umask 0 && mkdir -p -m 1777 "$folder") 2>/dev/null
[[ -d $folder ]] || die "$folder is not a folder; LOCKSTEP_LOCK_DIR names another"
gpu=$( ((count == 1)) && echo "GPU" || echo "GPUs")
start=${EPOCHREALTIME/./}
has_said=
while :; do
  try_acquire
  waited=$((${EPOCHREALTIME/./} - start))
  ((${#taken[@]} == 0)) || break
  reasons=$(printf ', %s' "${busy[@]}")
  if [[ $timeout != inf ]] && awk "BEGIN { exit !($waited >= $timeout * 1e6) }"; then
    die "waited $timeout s for $count idle $gpu: ${reasons:2}"
  fi
  [[ -n $has_said ]] || echo "lockstep: waiting for $count idle $gpu: ${reasons:2}" >&2
  has_said=yes
  sleep 0.3
done
if [[ -n $has_said ]]; then
  awk "BEGIN { printf \"lockstep: got them after %.1f s\n\", $waited / 1e6 }" >&2
fi
CUDA_VISIBLE_DEVICES=${taken[*]}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES// /,}
exec "$@"
