// DistributedDataParallel that one thread drives: the replicas of all ranks in one object.
//
// Rank r is devices[r]. A step runs forward and backward of one rank after the other; the work of
// different devices runs at the same time where it is asynchronous (CUDA). Bucket b is all-reduced
// on the communication streams from the points where it became full on each device, so it overlaps
// with backward just as between threads. Buckets, plans and bits are those of Ddp.
// Since no thread waits for another, a step after the first (which settles the buckets and the
// memory) can be captured into one CUDA graph.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/device_group.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/parallel/ddp/grad_buckets.h"
#include "engine/parallel/ddp/packed_buffers.h"

namespace lockstep::parallel {

class ReplicaGroup {
 public:
  // The module is replica 0; the others are copies of it on their devices.
  // Throws Error{Device} for devices that stand twice or do not exist, or unless the module is on
  // devices[0]; Error{Usage} when no parameter requires a gradient.
  ReplicaGroup(const std::shared_ptr<nn::Module>& module, const std::vector<Device>& devices,
               const DdpOptions& options = {}, plan::AllReducePlan plan = {});

  std::size_t size() const { return modules_.size(); }
  const std::vector<Device>& devices() const { return devices_; }
  // The module whose parameters this rank's optimizer changes.
  nn::Module& replica(std::size_t rank) { return *modules_[rank]; }
  bool was_rebuilt() const { return was_rebuilt_; }

  // For every rank in turn calls backward(module, rank), which computes the loss of the rank's
  // shard and calls its backward() once. The thread's context names the rank. Afterwards every
  // replica's gradients are the average over all ranks; the compute streams are ordered behind it.
  // Buffers follow rank 0 before, if the modules are in training.
  // Throws Error{State} naming the parameters of a rank that got no gradient.
  void run_backward(const std::function<void(nn::Module& replica, std::size_t rank)>& backward);
  // The same for one rank. REQUIRES: it is called for rank 0, then for the others in turn.
  void run_rank(std::size_t rank, const std::function<void(nn::Module& replica)>& backward);

 private:
  void broadcast_buffers();
  void begin_step();
  void on_ready(std::size_t rank, std::size_t parameter);
  comm::Work reduce(std::size_t bucket, comm::Launch launch);
  void rebuild_in_ready_order();

  DdpOptions options_;
  plan::AllReducePlan plan_;
  std::vector<Device> devices_;  // indexed by rank
  comm::SingleThreadGroup communicator_;
  std::vector<std::shared_ptr<nn::Module>> modules_;   // indexed by rank
  std::vector<std::unique_ptr<GradBuckets>> buckets_;  // indexed by rank
  std::vector<PackedBuffers> buffers_;                 // indexed by rank
  bool was_rebuilt_ = false;
  // When each bucket of the current step became full on each rank.
  std::vector<std::vector<std::shared_ptr<runtime::Event>>> full_;
  BucketSchedule schedule_;
};

}  // namespace lockstep::parallel
