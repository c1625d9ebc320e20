#include "engine/runtime/storage.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::runtime {

void Storage::fail_freed() {
  fail(ErrorCode::State, "storage",
       "this tensor's memory is freed: a sharded parameter has it only while its layer runs; read "
       "weights with Sharded::state_dict()");
}

void Storage::release() {
  if (is_freed_ || whole_) return;
  // One event per stream, recorded now: everything that can use this memory was submitted before
  // the last owner let go.
  std::vector<std::shared_ptr<Event>> uses = std::move(used_until_);
  try {
    for (Stream* stream : used_by_) uses.push_back(stream->record());
  } catch (const Error&) {
    // The device is broken, so memory that it may still write to is not given out again.
    return;
  }
  used_by_.clear();
  pool_.release(block_, std::move(uses));
}

void Storage::free_memory() {
  release();
  is_freed_ = true;
}

void Storage::take_memory(Storage& other) {
  require(&pool_ == &other.pool_ && !other.is_freed_, ErrorCode::Usage, "storage",
          "only memory of the same device can be taken");
  free_memory();
  block_ = other.block_;
  used_by_ = std::move(other.used_by_);
  used_until_ = std::move(other.used_until_);
  other.is_freed_ = true;
  is_freed_ = false;
}

void Storage::record_use(Stream& stream) {
  if (whole_) return whole_->record_use(stream);
  std::lock_guard lock(mutex_);
  if (std::find(used_by_.begin(), used_by_.end(), &stream) == used_by_.end()) {
    used_by_.push_back(&stream);
  }
}

void Storage::record_use(std::shared_ptr<Event> event) {
  if (whole_) return whole_->record_use(std::move(event));
  std::lock_guard lock(mutex_);
  used_until_.push_back(std::move(event));
}

}  // namespace lockstep::runtime
