// All-reduce among ranks that have a GPU each: one kernel per rank, and the kernels meet by
// themselves, through words in each other's memory. No event goes from one GPU to another, which
// saves most of the time that a small all-reduce takes.
//
// one-shot:  every rank reads all n buffers and adds them up for itself. One barrier; reads n-1
//            buffers over the links. For small buffers.
// two-shot:  rank r adds up part r of all buffers and writes the sums to all. Two barriers; reads
//            and writes (n-1)/n of a buffer over the links. For large ones.
// Both have the bits of reduce_to_all (cuda_peer.h).
//
// Why no kernel waits for ever:
//   - One thread launches the kernels of all ranks, one right after the other, when all ranks have
//     come: a kernel that is launched is not alone.
//   - Nobody's call into CUDA that waits for whole GPUs comes between these launches
//     (engine/runtime/cuda/device_wide_calls.h).
//   - Collectives are enqueued one at a time in a process (grouped/enqueue_order.h). So the kernels
//     of two collectives stand in the same order in every GPU's queues, and no stream waits,
//     between the launches of one collective, for what comes after its first.
//   - Each rank has a GPU of its own, so no rank's kernel takes the place of another's.
//   - Block b waits only for block b of the peers, and blocks are numbered in the order in which
//     they start (flag_barrier.cuh), so not all of them need to fit on the GPU at once.
//   - Should a kernel still stay away (its GPU failed), the others stop waiting after
//     patience_seconds and leave a fault: Error{Timeout} where the host next waits for the device.
//     What is in the buffers then is undefined; the ranks have lost each other, and every later
//     call is the same error.
// A tool that runs kernels one at a time (a profiler that replays them, a debugger) breaks the
// first rule; LOCKSTEP_FLAG_ALL_REDUCE=off is for that. CUDA_LAUNCH_BLOCKING=1 and
// LOCKSTEP_CUDA_BLOCKING=1 switch it off, too.
//
// LOCKSTEP_FLAG_ALL_REDUCE=force takes these kernels also where ranks share a GPU, so that one card
// can test them (not for timing). Their blocks then all fit on the GPU at the same time: half of
// its multiprocessors, divided by the ranks on it. What remains is that CUDA may put their streams
// into one hardware queue; CUDA_DEVICE_MAX_CONNECTIONS=32 makes that unlikely, and patience_seconds
// ends it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/runtime/storage.h"

namespace lockstep::comm::cuda_peer {

class FlagAllReduce {
 public:
  explicit FlagAllReduce(double patience_seconds = 120) : patience_seconds_(patience_seconds) {}

  // Whether the kernels can do it for the ranks that these streams belong to: 2 to 16 ranks, all on
  // different GPUs (different logical devices, if forced), not switched off. Inside a graph's
  // capture only if a call before it has made the memory in which the ranks meet. REQUIRES: streams
  // of CUDA devices. Throws Error{Usage} if LOCKSTEP_FLAG_ALL_REDUCE is something else than on, off
  // or force.
  bool serves(std::span<runtime::Stream* const> streams) const;

  // Enqueues buffers[r] = factor * buffers[0] op factor * buffers[1] op ..., on every rank, each on
  // its own stream. May be captured into a graph.
  // plan:     one_shot, two_shot, or automatic: one_shot up to 512 KiB, 256 KiB for more than 4
  //           ranks.
  // REQUIRES: serves(streams); every GPU has access to the memory of every other; buffers of one
  //           type and length, on the streams' devices; the calls of one object come one after the
  //           other, and no other collective of the process is enqueued meanwhile.
  // Memory:   1 MiB on every GPU, as long as this object lives. A graph that captured the call uses
  //           it, and is launched no more after that.
  void enqueue(plan::AllReducePlan plan, ReduceOp op, double factor,
               std::span<runtime::Stream* const> streams, std::span<const TensorView> buffers);

 private:
  // The memory in which the ranks meet, and the streams of their last call. By rank.
  struct Ranks {
    std::vector<std::shared_ptr<runtime::Storage>> memory;  // a FlagMemory each
    std::vector<runtime::Stream*> last_streams;
  };
  using Devices = std::vector<runtime::LogicalDevice*>;
  static Devices devices_of(std::span<runtime::Stream* const> streams);
  static Ranks prepare(std::span<runtime::Stream* const> streams);

  double patience_seconds_;
  // Kept as long as this object, since captured graphs hold their addresses.
  std::map<Devices, Ranks> ranks_;
};

}  // namespace lockstep::comm::cuda_peer
