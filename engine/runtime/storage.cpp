#include "engine/runtime/storage.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::runtime {

Storage::~Storage() {
  // One event per stream, recorded now: everything that can use this memory was submitted before
  // the last owner let go.
  std::vector<std::shared_ptr<Event>> uses = std::move(used_until_);
  try {
    for (Stream* stream : used_by_) uses.push_back(stream->record());
  } catch (const Error&) {
    // The device is broken, so memory that it may still write to is not given out again.
    return;
  }
  pool_.release(block_, std::move(uses));
}

void Storage::record_use(Stream& stream) {
  std::lock_guard lock(mutex_);
  if (std::find(used_by_.begin(), used_by_.end(), &stream) == used_by_.end()) {
    used_by_.push_back(&stream);
  }
}

void Storage::record_use(std::shared_ptr<Event> event) {
  std::lock_guard lock(mutex_);
  used_until_.push_back(std::move(event));
}

}  // namespace lockstep::runtime
