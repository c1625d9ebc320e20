// When buckets are all-reduced: strictly in order, so that all ranks start the same ones.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep::parallel {

// When a full bucket is all-reduced.
enum class Overlap {
  during_backward,  // at once, on the communication stream
  after_backward,   // all of them at the end, in the calling thread: the lesson of tutorial 09
};

class BucketSchedule {
 public:
  // Starts the all-reduce of a bucket.
  using Reduce = std::function<comm::Work(std::size_t bucket, comm::Launch launch)>;

  // num_replicas: how many report each bucket here. A bucket is reduced when all of them did.
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

}  // namespace lockstep::parallel
