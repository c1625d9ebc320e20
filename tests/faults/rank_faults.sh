# Faults of one rank, among four that were started by hand. To be sourced by run_faults.sh.
# shellcheck shell=bash disable=SC2154

# Over TCP a rank is known to be lost; in shared memory it is also known what it was needed for.
lost() { echo "rank $1 (\(process [0-9]+\) died|is lost: its connection closed)|rank $1, which serves the store .* is gone"; }
late() { echo "waited 2 s in all_reduce #[0-9]+ of [0-9]+ float32 .*rank $1( is missing|, which has called it too but does not go on)"; }

killed() {  # killed RANK PLACE TRANSPORT
  ranks 4 --fault kill --rank "$1" --place "$2" --transport "$3"
  survivors_say 4 "$1" "$(lost "$1")" $at_once
}

stopped() {  # stopped RANK PLACE TRANSPORT
  ranks 4 --fault stop --rank "$1" --place "$2" --transport "$3"
  survivors_say 4 "$1" "$(late "$1")" $by_timeout
  woken_ends "rank$1"
}

fault_killed_before_rendezvous() {
  ranks 4 --fault kill --place before-rendezvous
  survivors_say 4 1 '\[join\] 3 of 4 ranks came within 2 s, missing: rank 1; start' $by_timeout
}
fault_killed_during_rendezvous() {
  ranks 4 --fault kill --place rendezvous
  survivors_say 4 1 'rank 1 ended without leaving: it was killed' $at_once
}
fault_killed_in_forward_shm() { killed 1 forward shm; }
fault_killed_in_forward_tcp() { killed 1 forward tcp; }
fault_killed_in_all_reduce_shm() { killed 1 all-reduce shm; }
fault_killed_in_all_reduce_tcp() { killed 1 all-reduce tcp; }

fault_rank_0_killed_before_rendezvous() {
  ranks 4 --fault kill --rank 0 --place before-rendezvous
  survivors_say 4 0 'rank [123] waited 2 s for rank 0, which has not come' $by_timeout
}
fault_rank_0_killed_during_rendezvous() {
  ranks 4 --fault kill --rank 0 --place rendezvous
  survivors_say 4 0 'rank 0, which serves the store at 127.0.0.1 port [0-9]+, is gone' $at_once
}
fault_rank_0_killed_in_forward_tcp() { killed 0 forward tcp; }
fault_rank_0_killed_in_all_reduce_shm() { killed 0 all-reduce shm; }

fault_stopped_before_rendezvous() {
  ranks 4 --fault stop --place before-rendezvous
  survivors_say 4 1 '\[join\] 3 of 4 ranks came within 2 s, missing: rank 1; start' $by_timeout
  woken_ends rank1
}
fault_stopped_during_rendezvous() {
  ranks 4 --fault stop --place rendezvous
  survivors_say 4 1 '\[process group 0\] 3 of 4 ranks came within 2 s, missing: rank 1' $by_timeout
  woken_ends rank1
}
fault_stopped_in_forward_shm() { stopped 1 forward shm; }
fault_stopped_in_forward_tcp() { stopped 1 forward tcp; }
fault_stopped_in_all_reduce_shm() { stopped 1 all-reduce shm; }
fault_stopped_in_all_reduce_tcp() { stopped 1 all-reduce tcp; }
fault_rank_0_stopped_during_rendezvous() {
  ranks 4 --fault stop --rank 0 --place rendezvous
  survivors_say 4 0 'rank 0, which serves the store at 127.0.0.1 port [0-9]+, does not answer' $by_timeout
  woken_ends rank0
}
fault_rank_0_stopped_in_forward_shm() { stopped 0 forward shm; }

differs() {  # differs TRANSPORT
  ranks 4 --fault collective --transport "$1"
  survivors_say 4 none "\[collective\] rank 1 called broadcast #[0-9]+ of 4194304 float32 from rank 0 while rank 0 called all_reduce #[0-9]+ of 4194304 float32" $at_once
}
fault_another_collective_shm() { differs shm; }
fault_another_collective_tcp() { differs tcp; }
