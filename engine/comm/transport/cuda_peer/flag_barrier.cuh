// The barrier among kernels of different GPUs: block b of a rank meets block b of every other.
#pragma once

#include "engine/comm/transport/cuda_peer/flag_memory.h"
#include "engine/runtime/cuda/system_flag.h"
#include "kernels/cuda/elementwise.cuh"

namespace lockstep::comm::cuda_peer {

// What a rank's kernel knows of the others.
struct FlagPeers {
  FlagMemory* memory[kMaxFlagRanks];
  void* buffers[kMaxFlagRanks];
  int num_ranks;
  int rank;
  unsigned long long patience_ns;
  runtime::cuda::DeviceFault* fault;  // of the rank's device

  __device__ FlagMemory& mine() const { return *memory[rank]; }
};

// The number of the calling block, in the order in which the grid's blocks start.
//
// Why not blockIdx: nobody says in which order blocks start. With these numbers the lowest block
// that is not done anywhere is, on every GPU, running or the next to start; since it waits for its
// namesakes only, it gets done. So kernels make progress however few of their blocks fit on a GPU.
__device__ inline unsigned take_block_number(const FlagPeers& peers) {
  __shared__ unsigned number;
  if (gridDim.x == 1) return 0;
  // Wraps to 0 with the last block.
  if (threadIdx.x == 0) number = atomicInc(&peers.mine().next_block, gridDim.x - 1);
  __syncthreads();
  return number;
}

__device__ inline void report_missing(const FlagPeers& peers, int peer) {
  kernels::cuda::report_fault(peers.fault, runtime::cuda::FaultKind::peer_timeout, peer,
                              static_cast<std::size_t>(peers.num_ranks));
}

// Whether block `block` of the peer comes to the epoch before patience ends.
__device__ inline bool wait_for_peer(const FlagPeers& peers, unsigned block, int peer,
                                     Epoch epoch) {
  constexpr unsigned kPollsPerNap = 64;
  const Epoch* const flag = &peers.mine().flags[block].reached_by[peer];
  const unsigned long long start = runtime::cuda::nanoseconds();
  Epoch reached = runtime::cuda::load_acquire_system(flag);
  for (unsigned poll = 1; reached < epoch; ++poll) {
    if (poll % kPollsPerNap == 0) {
      if (runtime::cuda::nanoseconds() - start > peers.patience_ns) reached = kGaveUp;
      __nanosleep(100);
    }
    if (reached < epoch) reached = runtime::cuda::load_acquire_system(flag);
  }
  if (reached != kGaveUp) return true;
  report_missing(peers, peer);
  return false;
}

// By all threads of a block: returns when the block of this number has come to the epoch on every
// rank. What they all wrote before, everybody sees. False: some peer did not come, and this block
// has told the others that it will come no more.
__device__ inline bool meet(const FlagPeers& peers, unsigned block, Epoch epoch) {
  const int peer = static_cast<int>(threadIdx.x);
  const bool has_peer = peer < peers.num_ranks;
  const auto tell = [&](Epoch value) {
    if (!has_peer) return;
    runtime::cuda::store_release_system(&peers.memory[peer]->flags[block].reached_by[peers.rank],
                                        value);
  };
  __syncthreads();
  tell(epoch);
  __syncthreads();  // tell everybody before anybody waits
  const bool has_come = !has_peer || wait_for_peer(peers, block, peer, epoch);
  if (__syncthreads_and(has_come)) return true;
  tell(kGaveUp);
  if (threadIdx.x == 0) peers.mine().epochs[block] = kGaveUp;
  return false;
}

// The epoch that a block left in the launch before, or kGaveUp: then the launch does nothing but
// say so, since ranks that lost each other once cannot tell one barrier from the next.
__device__ inline Epoch last_epoch(const FlagPeers& peers, unsigned block) {
  const Epoch epoch = peers.mine().epochs[block];
  if (epoch == kGaveUp && threadIdx.x == 0) report_missing(peers, peers.rank);
  return epoch;
}

}  // namespace lockstep::comm::cuda_peer
