// The kernels of a flag all-reduce, and how they are launched: see flag_all_reduce.h.
#pragma once

#include <span>

#include "engine/comm/communicator.h"
#include "engine/comm/transport/cuda_peer/flag_memory.h"

namespace lockstep::comm::cuda_peer {

// A rank's part in a launch: its stream, and memory of the stream's GPU.
struct FlagRank {
  runtime::Stream* stream;
  TensorView buffer;
  FlagMemory* memory;
};

// One launch per rank, all by the calling thread, one right after the other.
// plan: one_shot or two_shot. patience_seconds: how long a kernel waits for a peer's.
// REQUIRES: what FlagAllReduce::enqueue requires; buffers are not empty.
void launch_flag_kernels(plan::AllReducePlan plan, ReduceOp op, double factor,
                         std::span<const FlagRank> ranks, double patience_seconds);

}  // namespace lockstep::comm::cuda_peer
