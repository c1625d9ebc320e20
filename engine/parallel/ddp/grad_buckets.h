// Gradients in buckets, and the order in which full buckets are all-reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/comm/communicator.h"
#include "engine/nn/module.h"
#include "engine/plan/buckets.h"

namespace lockstep::parallel {

// When a full bucket is all-reduced.
enum class Overlap {
  during_backward,  // when it and those before it are full, beside backward; the last one after it
  after_backward,   // all of them at the end, in the calling thread: the lesson of tutorial 10
};

// Starts the all-reduces of full buckets, strictly in order, so that all ranks start the same ones.
class BucketSchedule {
 public:
  // Starts the all-reduce of a bucket.
  using Reduce = std::function<comm::Work(std::size_t bucket, comm::Launch launch)>;

  // num_replicas: how many report each bucket here, 1 for Ddp, all ranks for ReplicaGroup. A bucket
  // is reduced when all of them did.
  BucketSchedule(Overlap overlap, std::size_t num_replicas, Reduce reduce);

  void begin_backward(std::size_t num_buckets);
  // One more replica has filled the bucket. Reduces (async) what that makes possible.
  void add_full(std::size_t bucket);
  // Reduces (blocking) all that is left, in the calling thread.
  // REQUIRES: every replica has filled every bucket.
  void reduce_rest();
  // Returns when all that was reduced is done, in the sense of Work::wait().
  void wait();

 private:
  struct Bucket {
    std::size_t num_full = 0;  // replicas
    comm::Work work;
  };

  void reduce_full(std::size_t end, comm::Launch launch);

  Overlap overlap_;
  std::size_t num_replicas_;
  Reduce reduce_;
  std::vector<Bucket> buckets_;
  std::size_t next_bucket_ = 0;
};

// One replica's gradients in buckets: where each gradient lies, and which buckets are full. Knows
// no other ranks.
//
// Gradients are computed in place: each parameter's gradient slot is a view of its bucket, so
// nothing is packed or unpacked. A gradient that was put elsewhere is copied in when it
// gets ready.
class GradBuckets {
 public:
  // Takes the parameters that require a gradient, and gives them slots in buckets of these sizes
  // (plan::BucketOptions), the last parameter first. on_ready(i) is called when gradient i of a
  // backward pass is in place, by the line of work of the parameter's device.
  // Throws Error{Usage} unless at least one of them requires a gradient.
  GradBuckets(std::vector<nn::NamedParameter> parameters,
              std::vector<std::size_t> bucket_byte_limits,
              const std::function<void(std::size_t parameter)>& on_ready);
  // Takes hooks and slots away again.
  ~GradBuckets();
  GradBuckets(const GradBuckets&) = delete;
  GradBuckets& operator=(const GradBuckets&) = delete;

  // Makes the buckets again in another order of parameters; gradients move with them.
  void build(const std::vector<std::size_t>& order);

  // Gives slots back to parameters whose tensor was replaced. Throws Error{Device} when one has
  // another device or dtype than at construction.
  void require_slots_fit();

  // --- a backward pass
  void begin_backward();
  // Puts a parameter's gradient into its slot if it is not there, and counts it. Returns its
  // bucket.
  std::size_t collect(std::size_t parameter);
  // Counts a parameter that gets no gradient in this backward pass. What it has from before stays
  // in the sum; one without a gradient adds zeros. Returns its bucket.
  std::size_t collect_unused(std::size_t parameter);
  bool is_full(std::size_t bucket) const { return buckets_[bucket].num_pending == 0; }
  // Throws Error{State} naming rank and parameters unless all have been collected.
  void require_complete(int rank) const;
  // Parameters as they were collected in this backward pass.
  const std::vector<std::size_t>& ready_order() const { return ready_order_; }

  // Those that require a gradient.
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  std::size_t num_buckets() const { return buckets_.size(); }
  const Tensor& memory(std::size_t bucket) const { return buckets_[bucket].memory; }
  const Tensor& slot(std::size_t parameter) const { return places_[parameter].slot; }
  const plan::BucketPlan& plan() const { return plan_; }

 private:
  struct Bucket {
    Tensor memory;
    std::size_t num_pending = 0;  // parameters without a gradient in this backward pass
  };
  struct Place {
    std::size_t bucket = 0;
    Tensor slot;  // view of the bucket's memory
  };

  std::size_t count(std::size_t parameter);

  std::vector<nn::NamedParameter> parameters_;
  std::vector<std::size_t> bucket_byte_limits_;
  std::vector<std::uint64_t> hooks_;
  plan::BucketPlan plan_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;             // indexed by parameter
  std::vector<std::size_t> ready_order_;  // this backward pass's
};

}  // namespace lockstep::parallel
