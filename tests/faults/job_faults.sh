# Faults of a whole job: its launcher, its variables, its port, its logs. To be sourced by
# run_faults.sh.
# shellcheck shell=bash disable=SC2154

# --- under the launcher: the first failure is named, and all others are ended ---

fault_launcher_ends_a_stopped_rank() {
  launch -- --fault stop --place all-reduce
  ends launcher 1 $((by_timeout + 2))
  contains launcher '^lockstep: \[run\] rank [023] failed first: exit code 1; its last error line: .*rank 1( is missing|, which has called it too but does not go on)'
}

# --- started by hand, and wrongly ---

fault_wrong_token() {
  rank 0 2 LOCKSTEP_TOKEN=the-right-one-of-two --
  rank 1 2 LOCKSTEP_TOKEN=another-one-of-two --
  ends rank1 1 $at_once
  says rank1 '\[store\] 127.0.0.1 port [0-9]+ closed the connection: it belongs to a job with another token'
  ends rank0 1 $by_timeout
  says rank0 '\[join\] 1 of 2 ranks came within 2 s, missing: rank 1'
}

# Another job's rank 0 waits for its rank 1 where ours want to meet.
occupy_port() {
  start other RANK=0 WORLD_SIZE=2 MASTER_PORT="$port" LOCKSTEP_TOKEN=of-quite-another-job -- \
    "$bin/faulty_rank" --comm-timeout 30
  wait_until 5 eval 'awk "\$4 == \"0A\"" /proc/net/tcp | grep -q "$(printf ":%04X" "$port")"'
}
fault_port_in_use() {
  occupy_port
  rank 0 2 LOCKSTEP_TOKEN=ours-and-nobody-elses --
  rank 1 2 LOCKSTEP_TOKEN=ours-and-nobody-elses --
  ends rank0 1 $at_once
  says rank0 "port $port of 127.0.0.1 is in use by another program; choose another port"
  ends rank1 1 $at_once
  says rank1 "127.0.0.1 port $port closed the connection: it belongs to a job with another token"
  end_all
}
fault_port_in_use_of_the_launcher() {
  occupy_port
  start launcher -- "$bin/lockstep" run --nproc-per-node 2 --master-port "$port" -- "$bin/faulty_rank"
  ends launcher 1 $at_once
  says launcher "lockstep: \[run\] .*port $port .*in use.*--standalone"
  end_all
}

fault_different_world_sizes() {
  rank 0 2 --
  rank 1 3 --
  local number
  for number in 0 1; do
    wait_until 20 has_ended rank$number || wrong "rank$number does not end"
    says rank$number '\[join\] the ranks differ in WORLD_SIZE: [23] \(rank [01]\) and [23] \(rank [01]\)'
  done
}
fault_world_size_larger_than_the_ranks() {
  local number
  for number in 0 1 2; do rank $number 5 --; done
  survivors_say 3 none '\[join\] 3 of 5 ranks came within 2 s, missing: rank 3, 4; start them too, or correct WORLD_SIZE' $by_timeout
}
# First come stays, the late one alone is refused. Which of two that start at once comes first is open.
fault_same_rank_twice_while_joining() {
  rank 0 3 --
  rank 1 3 --
  start twin RANK=1 WORLD_SIZE=3 MASTER_PORT="$port" -- "$bin/faulty_rank" --comm-timeout $comm_timeout
  wait_until 20 some_twin_has_ended || wrong "neither rank 1 nor its twin ends"
  rank 2 3 --
  local refused=twin stays=rank1
  has_ended twin || { refused=rank1; stays=twin; }
  ends $refused 1 $at_once
  says $refused "\[join\] rank 1 of this job is taken by process [0-9]+ on .*, so process [0-9]+ on .* cannot join; is another job using port $port"
  ends rank0 0 $by_timeout
  ends $stays 0 $by_timeout
  ends rank2 0 $by_timeout
}
some_twin_has_ended() { has_ended rank1 || has_ended twin; }

# A job that trains is not disturbed by strays: a script started twice, ranks of another size, with
# this job's token and with another one.
strays() {  # strays TRANSPORT
  rank 0 2 -- --steps 1000 --large-mib 4 --transport "$1"
  rank 1 2 -- --steps 1000 --large-mib 4 --transport "$1"
  wait_until 10 has_written rank0 'own: auto over' || wrong "the ranks do not train"
  local name fault_start=$fault_start
  fault_start=$(now)
  start stray0 RANK=0 WORLD_SIZE=2 MASTER_PORT="$port" -- "$bin/faulty_rank" --comm-timeout $comm_timeout
  start stray1 RANK=1 WORLD_SIZE=2 MASTER_PORT="$port" -- "$bin/faulty_rank" --comm-timeout $comm_timeout
  start stray3 RANK=3 WORLD_SIZE=4 MASTER_PORT="$port" -- "$bin/faulty_rank" --comm-timeout $comm_timeout
  start stranger RANK=1 WORLD_SIZE=2 MASTER_PORT="$port" LOCKSTEP_TOKEN=another-one-of-two -- "$bin/faulty_rank" --comm-timeout $comm_timeout
  for name in stray0 stray1 stray3 stranger; do ends $name 1 $at_once; done
  says stray0 "port $port of 127.0.0.1 is in use by another program"
  says stray1 '\[join\] rank 1 of this job is taken by process [0-9]+ on '
  says stray3 '\[join\] all 2 ranks of this job have come, and rank 3 is not one of them'
  says stranger 'it belongs to a job with another token'
  ! has_ended rank0 || wrong "rank 0 ended before the strays did: its steps are too few"
  ends rank0 0 60
  ends rank1 0 60
}
fault_strays_of_the_same_port_shm() { strays shm; }
fault_strays_of_the_same_port_tcp() { strays tcp; }
