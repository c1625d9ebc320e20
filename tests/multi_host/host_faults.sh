# Two hosts of two ranks each, and what can happen to the link between them. A host is a network
# namespace; the link is a pair of virtual network cards, link0 and link1. To be sourced by
# run_faults.sh.
# shellcheck shell=bash disable=SC2154

address_of=(10.77.0.1 10.77.0.2)
keepers=()

# keepers holds the processes that keep the hosts alive. Nothing of them is on disk, so nothing is
# left when those end.
make_hosts() {
  [[ -n $is_isolated ]] || { skip_fault "needs iproute2, unshare, and root"; return 1; }
  local host
  for host in 0 1; do
    unshare --net sleep 300 &
    keepers[host]=$!
    disown
    wait_until 5 is_other_network "${keepers[host]}" || { wrong "no network namespace"; return 1; }
  done
  ip link add link0 netns "${keepers[0]}" type veth peer name link1 netns "${keepers[1]}" ||
    { skip_fault "the kernel has no veth"; return 1; }
  for host in 0 1; do
    on_host $host ip link set lo up
    on_host $host ip address add "${address_of[host]}/24" dev link$host
    on_host $host ip link set link$host up
  done
}
is_other_network() { [[ $(readlink "/proc/$1/ns/net") != "$(readlink /proc/self/ns/net)" ]]; }

on_host() {
  local host=$1
  shift
  nsenter --net="/proc/${keepers[host]}/ns/net" -- "$@"
}

remove_hosts() {
  local keeper
  for keeper in "${keepers[@]}"; do kill -KILL "$keeper" 2>/dev/null; done
  keepers=()
}

# hosts_run PROGRAM...: lockstep run on each host, 2 ranks each.
hosts_run() {
  local host
  for host in 0 1; do
    start "host$host" LOCKSTEP_TOKEN=the-token-of-this-test -- \
      nsenter --net="/proc/${keepers[host]}/ns/net" -- "$bin/lockstep" run --nnodes 2 \
      --nproc-per-node 2 --node-rank $host --master-addr "${address_of[0]}" --master-port "$port" -- \
      "$@"
  done
}

# The bitwise mode promises the same bits on 1 device and on 4 ranks of 2 hosts.
fault_hosts_train_as_one_device() {
  make_hosts || return
  local train=("$bin/lockstep" train --dataset digits --model mlp:64-256-10 --epochs 1 --bitwise)
  hosts_run "${train[@]}" --parallel ddp --comm-timeout $comm_timeout --save "$folder/hosts"
  "${train[@]}" --save "$folder/one" >/dev/null || wrong "one device does not train"
  ends host0 0 $by_timeout
  ends host1 0 $by_timeout
  cmp -s "$folder/hosts" "$folder/one" ||
    wrong "the weights differ from one device's; host 0 said: $(cat "$folder/host0.out" "$folder/host0.err")"
}

# By hand, so that every rank says what it saw. Each waits for those of the other host.
fault_hosts_cut_off() {
  make_hosts || return
  local number host
  for number in 0 1 2 3; do
    host=$((number / 2))
    start "rank$number" RANK=$number WORLD_SIZE=4 LOCAL_RANK=$((number % 2)) LOCAL_WORLD_SIZE=2 \
      MASTER_ADDR="${address_of[0]}" MASTER_PORT="$port" LOCKSTEP_TOKEN=the-token-of-this-test -- \
      nsenter --net="/proc/${keepers[host]}/ns/net" -- "$bin/faulty_rank" \
      --comm-timeout $comm_timeout --steps 1000000 --large-mib 1
  done
  wait_until 5 has_written rank0 'shm+tcp' || wrong "the ranks do not train: $(cat "$folder"/rank?.err)"
  fault_start=$(now)
  on_host 1 ip link set link1 down
  for number in 0 1; do
    ends rank$number 1 $by_timeout
    says rank$number 'waited 2 s in .* rank [23]'
  done
  for number in 2 3; do
    ends rank$number 1 $by_timeout
    says rank$number 'waited 2 s in .* rank [01]'
  done
}
