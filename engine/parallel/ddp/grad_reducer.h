// From gradients to averaged gradients: the heart of DistributedDataParallel.
//
//   leaf's gradient is ready  ->  its bucket counts it  ->  the bucket is full: all-reduce starts
//   on the communication stream while backward goes on  ->  end of backward: wait for all buckets
//
// Gradients are computed in place: each parameter's gradient slot is a view of its bucket, so
// nothing is packed or unpacked. What somebody put elsewhere is copied in when it gets ready.
// Source: torch/csrc/distributed/c10d/reducer.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/comm/communicator.h"
#include "engine/nn/module.h"
#include "engine/plan/buckets.h"

namespace lockstep::parallel {

// When a full bucket is all-reduced.
enum class Overlap {
  during_backward,  // at once, on the communication stream
  after_backward,   // all of them at the end, in the calling thread: the lesson of tutorial 09
};

// Whether the bucket plan is made again, in the order in which gradients became ready on rank 0,
// after the first synchronised backward pass.
enum class Rebuild { once, never };

struct GradReducerOptions {
  std::vector<std::size_t> bucket_byte_limits = {std::size_t{1} << 20, std::size_t{25} << 20};
  Overlap overlap = Overlap::during_backward;
  Rebuild rebuild = Rebuild::once;
  comm::ReduceOp op = comm::ReduceOp::average;
};

class GradReducer {
 public:
  // Every rank gives the same parameters in the same order (Ddp checks it).
  // Throws Error{Usage} unless at least one of them requires a gradient.
  GradReducer(std::vector<nn::NamedParameter> parameters, comm::Communicator& communicator,
              const GradReducerOptions& options = {});
  ~GradReducer();
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  // What the next backward passes do: all-reduce, or add up locally (no_sync).
  void set_synchronizing(bool synchronizing) { synchronizing_ = synchronizing; }
  bool is_synchronizing() const { return synchronizing_; }

  // A new forward pass: fixes, for its backward, whether gradients are synchronised.
  // Throws Error{Device} when a parameter has another device or dtype than at construction, and
  // the error of an all-reduce that a failed backward pass left behind.
  void begin_forward();

  const plan::BucketPlan& bucket_plan() const { return plan_; }
  bool was_rebuilt() const { return was_rebuilt_; }

  // All-reduces and bytes since construction.
  std::size_t num_all_reduces() const { return num_all_reduces_; }
  std::size_t num_reduced_bytes() const { return num_reduced_bytes_; }

 private:
  struct Bucket {
    Tensor memory;
    std::size_t num_pending = 0;  // parameters without a gradient in this backward pass
    comm::Work work;
  };
  struct Place {
    std::size_t bucket = 0;
    Tensor slot;  // view of the bucket's memory
  };

  void build(const std::vector<std::size_t>& order);
  void rebuild_in_ready_order();
  void require_slots_fit();
  // Called by the line of work of the parameter's device; lines of several devices take turns.
  void on_ready(std::size_t parameter);
  void begin_backward();
  // In order, up to bucket `end`.
  void launch_full_buckets(std::size_t end, comm::Launch launch);
  std::uint64_t flow_of(std::size_t bucket) const;
  void finish();

  std::vector<nn::NamedParameter> parameters_;
  std::vector<std::uint64_t> hooks_;
  comm::Communicator& communicator_;
  GradReducerOptions options_;

  plan::BucketPlan plan_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // by parameter

  std::mutex mutex_;  // guards what follows against other lines of work during backward
  bool synchronizing_ = true;
  bool forward_was_synchronizing_ = true;
  bool in_backward_ = false;
  bool was_rebuilt_ = false;
  std::size_t next_bucket_ = 0;           // buckets are launched strictly in order
  std::vector<std::size_t> ready_order_;  // of this backward pass
  std::size_t num_backward_passes_ = 0;
  std::size_t num_all_reduces_ = 0;
  std::size_t num_reduced_bytes_ = 0;
};

}  // namespace lockstep::parallel
