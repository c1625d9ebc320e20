// From gradients to averaged gradients: the heart of DistributedDataParallel.
//
//   leaf's gradient is ready  ->  its bucket counts it  ->  it and those before it are full: its
//   all-reduce starts on the communicator's thread while backward goes on  ->  end of backward: the
//   last bucket is reduced, nothing being left to hide it behind; wait for the others
//
// GradBuckets knows where gradients lie and when a bucket is full, BucketSchedule when it is
// reduced (grad_buckets.h). On CUDA the host waits for nothing: buckets are all-reduced on the
// communication stream, and the compute stream waits for them at the end. Source:
// torch/csrc/distributed/c10d/reducer.cpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/parallel/ddp/comm_hook.h"
#include "engine/parallel/ddp/grad_buckets.h"
#include "engine/parallel/ddp/unused_parameters.h"

namespace lockstep::parallel {

// once: the bucket plan is made again, in the order in which gradients became ready on rank 0,
// after the first synchronised backward pass.
enum class Rebuild { once, never };

struct GradReducerOptions {
  std::vector<std::size_t> bucket_byte_limits = {std::size_t{1} << 20, std::size_t{25} << 20};
  Overlap overlap = Overlap::during_backward;
  Rebuild rebuild = Rebuild::once;
  comm::ReduceOp op = comm::ReduceOp::average;
  Unused unused = Unused::error;  // find: buckets are not made again
  // The order of the parameters in the buckets, from a checkpoint; empty: that of readiness in the
  // first step.
  std::vector<std::size_t> order = {};
};

struct DdpLoggingData;  // logging_data.h

class GradReducer {
 public:
  // Every rank gives the same parameters in the same order (Ddp checks it).
  // Throws Error{Usage} unless at least one of them requires a gradient.
  GradReducer(std::vector<nn::NamedParameter> parameters, comm::Communicator& communicator,
              const GradReducerOptions& options = {});
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  // The next backward passes all-reduce, or add up locally (no_sync).
  void set_synchronizing(bool synchronizing) { synchronizing_ = synchronizing; }
  bool is_synchronizing() const { return synchronizing_; }

  // A new forward pass: fixes, for its backward, whether gradients are synchronised.
  // Throws Error{Device} when a parameter has another device or dtype than at construction, and
  // the error of an all-reduce that a failed backward pass left behind.
  void begin_forward();
  // output: that of the forward pass, in which Unused::find looks for parameters.
  void end_forward(const Variable& output);

  // Throws Error{Usage} where there is one.
  void register_hook(std::shared_ptr<CommHook> hook);

  // For join.h: the rank whose order of buckets all take, and by what this rank's gradients are
  // multiplied before they are averaged over all ranks.
  void set_round(int source, double factor);
  // A backward pass of a rank that has no rows: zeros, in the calls that the other ranks make.
  void reduce_zeros();

  const plan::BucketPlan& bucket_plan() const { return buckets_.plan(); }
  bool was_rebuilt() const { return was_rebuilt_; }

  DdpLoggingData logging_data() const;
  // All-reduces since construction.
  std::size_t num_all_reduces() const { return num_all_reduces_; }

 private:
  // After the first synchronised backward pass, unless buckets are never made again.
  void rebuild_in_ready_order();
  // Called by the line of work of the parameter's device; lines of several devices take turns.
  void on_ready(std::size_t parameter);
  void begin_backward();
  void start_if_full(std::size_t bucket);
  comm::Work reduce(std::size_t bucket, comm::Launch launch);
  comm::Work start(const GradBucket& bucket, comm::Launch launch);
  GradBucket bucket_at(std::size_t index, const Tensor& memory) const;
  void finish();

  comm::Communicator& communicator_;
  GradReducerOptions options_;
  GradBuckets buckets_;
  BucketSchedule schedule_;
  std::unique_ptr<UnusedParameters> unused_;  // nullptr: every parameter must get a gradient
  std::shared_ptr<CommHook> hook_;
  int source_ = 0;
  double factor_ = 1;

  // Held by on_ready(): hooks of leaves on several devices may come at once. Other methods run
  // outside of backward, or at its end.
  std::mutex mutex_;
  bool synchronizing_ = true;
  bool forward_was_synchronizing_ = true;
  bool in_backward_ = false;
  bool was_rebuilt_ = false;
  std::size_t num_backward_passes_ = 0;
  std::size_t num_all_reduces_ = 0;

  using Clock = std::chrono::steady_clock;
  struct Moments {  // when the parts of a step began and ended
    Clock::time_point forward, forward_end, backward, first_bucket, backward_end, end;
  };
  Moments moments_;
};

}  // namespace lockstep::parallel
