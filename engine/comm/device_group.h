// Collectives among devices, enqueued by one thread. If ranks are threads, rank 0's thread does it
// for all once they have met (device_rank.cpp); a SingleThreadGroup does it for devices that one
// thread drives. The thread waits for nothing, so a whole training step of all devices can be
// captured into one CUDA graph.
//
// all_reduce, automatic and two-shot: the first rank of every GPU owns a part of the elements. In
// one kernel (kernels::OrderedReduce) it reads its part from all ranks, adds the values in the
// order of ranks, and writes the sum to all ranks; one kernel serves all ranks that share a GPU.
// The bits are those of the two-shot plan.
//
// Everything else, and GPUs that do not reach each other's memory, follow the plan step by step.
// Copies and sums go to the streams of the ranks that receive, and the streams meet at events.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/device_calls.h"
#include "engine/runtime/storage.h"

namespace lockstep::comm {

// One rank's part in a collective.
struct GroupMember {
  runtime::Stream* stream = nullptr;  // the tensors' device's
  Tensor input;                       // the buffer, if there is only one
  Tensor output;                      // all_gather's and reduce_scatter's
};

// Enqueues all_reduce, broadcast, all_gather or reduce_scatter. The work follows everything that
// the members' streams hold, and precedes everything that they get later.
// REQUIRES: one member per rank, in order; tensors as Communicator wants them, on devices of one
//           type. Calls of one group come one after the other.
// Memory:   the caller keeps the tensors until their streams have passed.
void enqueue_collective(const CallHeader& call, std::span<const GroupMember> members);

// Enqueues a copy on a stream; either side is memory of any device of the stream's type.
void copy_on_stream(runtime::Stream& stream, ConstTensorView from, TensorView to);

// The start of a collective, one event per rank: async calls follow these events. Empty: they
// follow all work that the compute streams hold.
using StartEvents = std::span<const std::shared_ptr<runtime::Event>>;

// Several devices that one thread drives, instead of a thread per rank. A call gives the tensors of
// all ranks at once and enqueues the same plans with the same bits as a Communicator between
// threads would.
class SingleThreadGroup {
 public:
  // Works in place, see Communicator. blocking: in the order of the compute streams. async: on the
  // communication streams, and Work::wait() lets the compute streams wait. On the CPU the calling
  // thread does everything at once, so both are done when the call returns.
  // Throws:   Error{DType} for elements that cannot be reduced with the op.
  // REQUIRES: buffers holds one tensor per rank, on devices of one type, all of equal size and
  //           type; start is empty or holds one event per rank.
  Work all_reduce(std::span<const Tensor> buffers, const CollectiveOptions& options = {},
                  StartEvents start = {});
  Work broadcast(std::span<const Tensor> buffers, int root, Launch launch = Launch::blocking);

 private:
  Work submit(CallHeader call, std::span<const Tensor> buffers, Launch launch, StartEvents start);

  std::vector<StreamOrder> orders_;  // indexed by rank
};

}  // namespace lockstep::comm
