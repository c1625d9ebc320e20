#include "engine/parallel/ddp/bucket_schedule.h"

#include <utility>

namespace lockstep::parallel {

BucketSchedule::BucketSchedule(Overlap overlap, std::size_t num_replicas, Reduce reduce)
    : overlap_(overlap), num_replicas_(num_replicas), reduce_(std::move(reduce)) {}

void BucketSchedule::begin_backward(std::size_t num_buckets) {
  buckets_.clear();
  buckets_.resize(num_buckets);
  next_bucket_ = 0;
}

void BucketSchedule::add_full(std::size_t bucket) {
  ++buckets_[bucket].num_full;
  // Nothing is left to hide the last bucket behind: reduce_rest() takes it.
  if (overlap_ == Overlap::during_backward) reduce_full(buckets_.size() - 1, comm::Launch::async);
}

// In order, up to bucket `end`.
void BucketSchedule::reduce_full(std::size_t end, comm::Launch launch) {
  while (next_bucket_ < end && buckets_[next_bucket_].num_full == num_replicas_) {
    const std::size_t bucket = next_bucket_++;
    buckets_[bucket].work = reduce_(bucket, launch);
  }
}

void BucketSchedule::reduce_rest() {
  reduce_full(buckets_.size(), comm::Launch::blocking);
}

// A second wait would only be one more thing for the compute stream to do.
void BucketSchedule::wait() {
  for (Bucket& bucket : buckets_) std::exchange(bucket.work, {}).wait();
}

}  // namespace lockstep::parallel
