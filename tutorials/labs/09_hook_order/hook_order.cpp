#include "hook_order.h"

#include <utility>

#include "lab.h"

namespace lab {

Reducer::Reducer(std::vector<std::vector<std::size_t>> buckets,
                 std::function<void(std::size_t)> launch)
    : buckets_(std::move(buckets)), launch_(std::move(launch)) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const std::size_t parameter : buckets_[b]) {
      if (parameter >= bucket_of_.size()) bucket_of_.resize(parameter + 1);
      bucket_of_[parameter] = b;
    }
  }
}

void Reducer::begin_backward() {
  // SOLUTION begin: begin_backward: every gradient is missing, and bucket 0 is the next
  num_missing_.clear();
  for (const std::vector<std::size_t>& bucket : buckets_) num_missing_.push_back(bucket.size());
  next_ = 0;
  // SOLUTION end
}

void Reducer::on_ready(std::size_t parameter) {
  // SOLUTION begin: on_ready: count the gradient, then launch all buckets that may be launched now
  --num_missing_[bucket_of_[parameter]];
  while (next_ < buckets_.size() && num_missing_[next_] == 0) launch_(next_++);
  // SOLUTION end
}

void Reducer::finish() {
  // SOLUTION begin: finish: launch the buckets that are left, in order
  while (next_ < buckets_.size()) launch_(next_++);
  // SOLUTION end
}

}  // namespace lab
