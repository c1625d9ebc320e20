// Collectives among devices, enqueued by one thread. If ranks are threads, rank 0's thread does it
// for all once they have met; if a single thread drives the devices, that thread does it
// (single_thread_group.h). The thread waits for nothing, so the work may be captured into a CUDA
// graph.
//
// all_reduce, automatic and two-shot: the first rank of every GPU owns a part of the elements. In
// one kernel (reduce_to_all.h) it reads its part from all ranks, adds the values in the order of
// ranks, and writes the sum to all ranks; one kernel serves all ranks that share a GPU. The bits
// are those of the two-shot plan.
//
// Everything else, and GPUs that do not reach each other's memory, follow the plan step by step.
// Copies and sums go to the streams of the ranks that receive, and the streams meet at events.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/runtime/storage.h"

namespace lockstep::comm {

// One rank's part in a collective.
struct GroupMember {
  runtime::Stream* stream = nullptr;  // of the tensors' device
  Tensor input;                       // the buffer, if there is only one
  Tensor output;                      // of all_gather and reduce_scatter
};

// Memory on a rank's device that only the streams of this group's collectives use, so that they
// need not wait for the compute stream's other work. It grows, and is kept between calls. Memory
// that a captured graph uses is kept as long as the group, even after it has grown.
class DeviceScratch {
 public:
  std::byte* on(runtime::Stream& stream, std::size_t num_bytes);

 private:
  std::shared_ptr<runtime::Storage> memory_;
  std::size_t num_bytes_ = 0;
  bool is_in_graph_ = false;  // true if a graph uses memory_
  std::vector<std::shared_ptr<runtime::Storage>> kept_;
};

class DeviceGroup {
 public:
  // Enqueues all_reduce, broadcast, all_gather or reduce_scatter. The work follows everything that
  // the members' streams hold, and precedes everything that they get later.
  // REQUIRES: one member per rank, in order; tensors as Communicator wants them, on devices of one
  //           type. Calls come one after the other.
  // Memory:   the caller keeps the tensors until their streams have passed.
  void enqueue(const CallHeader& call, std::span<const GroupMember> members);

 private:
  void all_reduce(const CallHeader& call, std::span<const GroupMember> members);
  void all_gather(const CallHeader& call, std::span<const GroupMember> members);
  void reduce_scatter(const CallHeader& call, std::span<const GroupMember> members);
  void reduce_to_all_members(std::span<const GroupMember> members, ReduceOp op, double factor);

  std::vector<DeviceScratch> scratch_;  // by rank: of plans
  std::vector<DeviceScratch> inputs_;   // by rank: of reduce_scatter
};

// True if kernels of one device can access the other's memory. REQUIRES: both are of one type.
bool reaches(const runtime::LogicalDevice& reader, const runtime::LogicalDevice& owner);

// Enqueues outputs = sources[0] op sources[1] op ... on a stream whose device reaches all of them;
// see reduce_to_all.h.
void reduce_on_stream(runtime::Stream& stream, ReduceOp op, double factor,
                      std::span<const ConstTensorView> sources,
                      std::span<const TensorView> outputs);

// Enqueues a copy on a stream; either side is memory of any device of the stream's type.
void copy_on_stream(runtime::Stream& stream, ConstTensorView from, TensorView to);

}  // namespace lockstep::comm
