#!/usr/bin/env bash
# Breaks ranks, launchers, networks and disks, one fault at a time, and checks what the rest says.
#
#   run_faults.sh --bin FOLDER [--slowdown N] [--list] [FAULT...]
#
#   --bin FOLDER   where the programs lockstep and faulty_rank are (build/release/bin)
#   --slowdown N   programs compute N times as long, as under a sanitizer: who is to end well may take that time
#   --list         prints the names of the faults
#   FAULT...       only these; else all
#
# After every fault: each rank that is left has ended with one line that says the right thing, within
# its bound, and no process, listening port or shared-memory segment is left. Exits 0 when all is well;
# 77 when no fault that was asked for can be made here.
#
# Where it can, it runs in network and mount namespaces of its own (unshare), so that ports and
# segments of other programs are out of sight; elsewhere it looks only for what Lockstep makes.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
comm_timeout=2
# Bounds in seconds, from the start of the program, wide enough for a machine that builds meanwhile.
at_once=5          # what is noticed by closed connections; the words say that it was no timeout
by_timeout=10      # the timeout, the store's grace, and rank 0's wait for others to leave
slowdown=1
bin=
names=()

# --- what a fault is made of ---

now() { date +%s.%N; }

# wrong MESSAGE: notes why the fault did not end as it should.
wrong() { problems+=("$1"); }

# wait_until SECONDS COMMAND...: looks again and again; false after that time.
wait_until() {
  local end=$((SECONDS + $1 + 1))
  shift
  until "$@"; do
    [[ $SECONDS -le $end ]] || return 1
    read -rt 0.01 <>"$pause" || true
  done
}

# start NAME [VARIABLE=VALUE...] -- COMMAND...: in the background, with an environment of its own.
start() {
  local name=$1 variables=()
  shift
  while [[ $1 != -- ]]; do
    variables+=("$1")
    shift
  done
  shift
  started+=("$name")
  (
    env -i PATH="$PATH" TMPDIR="$folder" XDG_RUNTIME_DIR="$folder" LOCKSTEP_FAULTS_MARK="$mark" \
      "${variables[@]}" "$@" >"$folder/$name.out" 2>"$folder/$name.err" </dev/null &
    echo $! >"$folder/$name.pid"
    wait $!
    code=$?
    echo "$code $(now)" >"$folder/$name.end.new"
    mv "$folder/$name.end.new" "$folder/$name.end"
  ) 2>/dev/null &
}

# rank RANK WORLD_SIZE [VARIABLE=VALUE...] -- FLAGS...: by hand, as in a terminal.
rank() {
  local number=$1 size=$2 variables=()
  shift 2
  while [[ $1 != -- ]]; do
    variables+=("$1")
    shift
  done
  shift
  start "rank$number" RANK="$number" WORLD_SIZE="$size" MASTER_PORT="$port" "${variables[@]}" -- \
    "$bin/faulty_rank" --comm-timeout $comm_timeout "$@"
}

# ranks WORLD_SIZE FLAGS...: all of them.
ranks() {
  local size=$1 number
  shift
  for ((number = 0; number < size; number++)); do rank $number "$size" -- "$@"; done
}

# launch FLAGS... -- FLAGS...: lockstep run, for flags of the launcher, then of the rank.
launch() {
  local flags=()
  while [[ $1 != -- ]]; do
    flags+=("$1")
    shift
  done
  shift
  start launcher -- "$bin/lockstep" run --standalone --nproc-per-node 4 --shutdown-timeout 1 \
    "${flags[@]}" -- "$bin/faulty_rank" --comm-timeout $comm_timeout "$@"
}

has_started() { [[ -s $folder/$1.pid ]]; }
has_written() { grep -qs "$2" "$folder/$1.out"; }
process_of() {
  wait_until 5 has_started "$1" || wrong "$1 does not start"
  cat "$folder/$1.pid"
}
has_ended() { [[ -e $folder/$1.end ]]; }

# ends NAME CODE BOUND: waits for its end.
ends() {
  local code at bound=$3
  [[ $2 -ne 0 ]] || bound=$((bound * slowdown))
  wait_until $((bound > 30 ? bound : 30)) has_ended "$1" || { wrong "$1 does not end"; return; }
  read -r code at <"$folder/$1.end"
  [[ $code == "$2" ]] || wrong "$1 ended with code $code, expected $2"
  awk -v a="$fault_start" -v b="$at" -v bound="$bound" 'BEGIN { exit !(b - a <= bound) }' ||
    wrong "$1 ended after $(awk -v a="$fault_start" -v b="$at" 'BEGIN { printf "%.2f", b - a }') s, bound $bound s"
}

# says NAME REGEX: one line on stderr, and it matches.
says() {
  local lines
  lines=$(wc -l <"$folder/$1.err")
  [[ $lines -eq 1 ]] || wrong "$1 wrote $lines lines of errors, expected 1: $(head -c 600 "$folder/$1.err")"
  grep -qE "$2" "$folder/$1.err" ||
    wrong "$1 said '$(head -c 400 "$folder/$1.err")', expected '$2'"
}

# contains NAME REGEX: among other lines on stderr.
contains() {
  grep -qE "$2" "$folder/$1.err" ||
    wrong "$1 said '$(head -c 1500 "$folder/$1.err")', expected a line '$2'"
}

# survivors_say SIZE FAULTY REGEX BOUND: every rank but the faulty one.
survivors_say() {
  local number
  for ((number = 0; number < $1; number++)); do
    [[ $number != "$2" ]] || continue
    ends "rank$number" 1 "$4"
    says "rank$number" "$3"
  done
}

# A stopped rank that is woken later finds out too, whatever was left for it.
woken_ends() {
  kill -CONT "$(process_of "$1")"
  wait_until 10 has_ended "$1" || wrong "$1, woken again, does not end"
  [[ $(wc -l <"$folder/$1.err") -eq 1 ]] ||
    wrong "$1, woken again, said: $(head -c 400 "$folder/$1.err")"
}

processes() { grep -lzxF "LOCKSTEP_FAULTS_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null; }
no_process_is_left() { [[ -z $(processes) ]]; }
listening_ports() {
  local of_ours=.
  [[ -n $is_isolated ]] || of_ours=$(printf ':%04X' "$port")
  awk '$4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep "$of_ours" | sort
}
segments() {
  if [[ -n $is_isolated ]]; then ls -A /dev/shm; else ls -A /dev/shm | grep -i lockstep; fi
}

nothing_else_is_left() {
  [[ $(listening_ports) == "$ports_before" && $(segments) == "$segments_before" ]]
}

end_all() {
  local process
  for process in $(processes); do
    process=${process#/proc/}
    kill -KILL "${process%/environ}" 2>/dev/null
  done
}

# skip_fault WHY: it cannot be made on this machine.
skip_fault() { skipped_because=$1; }

source "$here/rank_faults.sh"
source "$here/job_faults.sh"
source "$here/../multi_host/host_faults.sh"

# --- running them ---

# run_fault NAME: sets problems and skipped_because.
run_fault() {
  local ports_before segments_before
  folder=$(mktemp -d "$work/fault.XXXX")
  mark=$(basename "$folder").$$
  started=()
  problems=()
  skipped_because=
  port=$((13000 + (RANDOM * 32768 + RANDOM) % 11000))
  ports_before=$(listening_ports)
  segments_before=$(segments)
  fault_start=$(now)
  "fault_$1"
  if [[ -z $skipped_because ]]; then
    wait_until 3 no_process_is_left || wrong "left behind: $(processes | wc -l) processes"
  fi
  end_all
  wait_until 5 no_process_is_left
  # A process that was killed loses its environment, by which it is found, before its sockets close.
  wait_until 3 nothing_else_is_left ||
    wrong "left behind: ports $(listening_ports | xargs), segments $(segments | xargs)"
  remove_hosts
  wait 2>/dev/null
}

list_faults() { compgen -A function fault_ | sed 's/^fault_//'; }

while [[ $# -gt 0 ]]; do
  case $1 in
    --bin) bin=$(cd "$2" && pwd); shift ;;
    --slowdown) slowdown=$2; shift ;;
    --list) list_faults; exit 0 ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "run_faults.sh: unknown flag '$1' (see --help)" >&2; exit 2 ;;
    *) names+=("$1") ;;
  esac
  shift
done
[[ -x $bin/faulty_rank ]] || { echo "run_faults.sh: there is no $bin/faulty_rank; say --bin FOLDER" >&2; exit 2; }

is_isolated=${LOCKSTEP_FAULTS_ISOLATED:-}
if [[ -z $is_isolated ]]; then
  isolate=(unshare --net --mount)
  [[ $(id -u) -eq 0 ]] || isolate+=(--map-root-user)
  if command -v ip >/dev/null && "${isolate[@]}" sh -c 'ip link set lo up && mount -t tmpfs none /dev/shm' 2>/dev/null; then
    export LOCKSTEP_FAULTS_ISOLATED=1
    exec "${isolate[@]}" -- "$0" --bin "$bin" --slowdown "$slowdown" "${names[@]}"
  fi
else
  ip link set lo up
  mount -t tmpfs none /dev/shm
fi

work=$(mktemp -d /tmp/lockstep-faults.XXXX)
pause=$work/pause
mkfifo "$pause"
trap 'end_all; remove_hosts; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mark=none
[[ ${#names[@]} -gt 0 ]] || mapfile -t names < <(list_faults)

num_wrong=0
num_skipped=0
for name in "${names[@]}"; do
  declare -F "fault_$name" >/dev/null || { echo "run_faults.sh: no fault '$name' (see --list)" >&2; exit 2; }
  run_fault "$name"
  if [[ -n $skipped_because ]]; then
    echo "$name: skipped: $skipped_because"
    num_skipped=$((num_skipped + 1))
  elif [[ ${#problems[@]} -gt 0 ]]; then
    echo "$name: wrong:"
    printf '  %s\n' "${problems[@]}"
    num_wrong=$((num_wrong + 1))
  else
    echo "$name: right"
    rm -rf "$folder"
  fi
done
[[ $num_wrong -eq 0 ]] || exit 1
[[ $num_skipped -lt ${#names[@]} ]] || exit 77
