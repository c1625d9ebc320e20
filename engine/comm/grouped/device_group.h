// Collectives among devices as one thread enqueues them: for ranks that are threads, rank 0's does
// it for all once they have met; for devices that a single thread drives, that thread
// (grouped_communicator.h).
//
// How `automatic`, one-shot and two-shot all-reduce where every rank has a GPU of its own: by one
// kernel per rank (transport/cuda_peer/flag_all_reduce.h).
//
// How `automatic` and two-shot do it elsewhere: the first rank of every GPU owns a part of the
// elements; in one kernel it reads its part from all ranks, adds the values up in the order of
// ranks, and writes the sum to all ranks. Ranks that share a GPU are so served by one kernel. It
// has the bits of the two-shot plan. Other plans, and GPUs that do not reach each other, go step by
// step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/grouped/group_executor.h"
#include "engine/comm/grouped/program_cache.h"
#include "engine/comm/transport/cuda_peer/flag_all_reduce.h"

namespace lockstep::comm {

// One rank's part in a collective.
struct GroupMember {
  runtime::Stream* stream = nullptr;  // of the tensors' device
  Tensor input;                       // the buffer, where there is only one
  Tensor output;                      // of all_gather and reduce_scatter
};

class DeviceGroup {
 public:
  // Enqueues all_reduce, broadcast, all_gather or reduce_scatter. The work follows what each
  // member's stream holds and precedes all that is given to it later.
  // REQUIRES: one member per rank, in their order; tensors as Communicator wants them, on devices
  // of one type. Calls come one after the other.
  // Memory:   the caller keeps the tensors until their streams have passed.
  void enqueue(const CallHeader& call, std::span<const GroupMember> members);

 private:
  // Memory on a rank's device that only the streams of this group's collectives use, so that they
  // need not wait for the compute stream's other work. Grows; kept between calls. What a captured
  // graph uses is kept as long as the group, also after it has grown.
  class Scratch {
   public:
    std::byte* on(runtime::Stream& stream, std::size_t num_bytes);

   private:
    std::shared_ptr<runtime::Storage> memory_;
    std::size_t num_bytes_ = 0;
    bool is_in_graph_ = false;  // memory_
    std::vector<std::shared_ptr<runtime::Storage>> kept_;
  };

  void all_reduce(const CallHeader& call, std::span<const GroupMember> members);
  // False, and nothing is enqueued, where the kernels that meet by themselves cannot do it.
  bool all_reduce_by_flags(const CallHeader& call, std::span<const GroupMember> members,
                           double factor);
  void all_gather(const CallHeader& call, std::span<const GroupMember> members);
  void reduce_scatter(const CallHeader& call, std::span<const GroupMember> members);
  void all_reduce_directly(std::span<const GroupMember> members, ReduceOp op, double factor);
  void run_plan(const CallHeader& call, std::span<const GroupRank> ranks);

  ProgramCache<std::vector<RankProgram>> programs_;
  cuda_peer::FlagAllReduce flags_;
  std::vector<Scratch> staging_;  // by rank: of run_plan
  std::vector<Scratch> inputs_;   // by rank: of reduce_scatter
};

}  // namespace lockstep::comm
