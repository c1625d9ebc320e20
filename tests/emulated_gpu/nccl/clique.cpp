#include "tests/emulated_gpu/nccl/clique.h"

#include <algorithm>

namespace emulated_nccl {

void Clique::join() {
  const std::lock_guard lock(mutex_);
  ++num_joined_;
}

bool Clique::is_complete() const {
  const std::lock_guard lock(mutex_);
  return num_joined_ == parts_.size();
}

void Clique::meet(int rank, const Part& part, const bool& is_aborted) {
  std::unique_lock lock(mutex_);
  const unsigned long round = round_;
  parts_[static_cast<std::size_t>(rank)] = &part;
  if (++num_arrived_ == parts_.size()) {
    const bool all_fit =
        std::ranges::all_of(parts_, [&](const Part* other) { return other->fits(part); });
    if (all_fit) {
      move_data(parts_);
      num_arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
  }
  changed_.wait(lock, [&] { return round_ != round || is_aborted; });
}

void Clique::abort(bool& is_aborted) {
  const std::lock_guard lock(mutex_);
  is_aborted = true;
  changed_.notify_all();
}

}  // namespace emulated_nccl
