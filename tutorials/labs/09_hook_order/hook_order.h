// Lab 09: when a bucket may be all-reduced. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace lab {

// Counts gradients as they become ready, and launches buckets.
//
// Gradients may become ready in any order, and in another one on each rank. All ranks must launch
// their all-reduces in the same order, or they would add up different gradients: so bucket b is
// launched when it is full and all buckets before it were launched, and as soon as that is so.
class Reducer {
 public:
  // buckets[b]: the parameters of bucket b; each parameter is in one bucket. launch(b) starts the
  // all-reduce of bucket b.
  Reducer(std::vector<std::vector<std::size_t>> buckets, std::function<void(std::size_t)> launch);

  // A backward pass begins: no gradient is ready, and no bucket launched.
  void begin_backward();

  // The hook of a parameter: its gradient is ready. Once for each parameter in a backward pass.
  void on_ready(std::size_t parameter);

  // The backward pass is over: launches what was not launched, in order. Gradients that never
  // became ready, because this pass did not use their parameters, count as zeros.
  void finish();

 private:
  std::vector<std::vector<std::size_t>> buckets_;
  std::function<void(std::size_t)> launch_;
  std::vector<std::size_t> bucket_of_;    // indexed by parameter
  std::vector<std::size_t> num_missing_;  // each bucket's gradients that are not ready yet
  std::size_t next_ = 0;                  // the bucket to be launched next
};

}  // namespace lab
