#include "engine/runtime/storage.h"

#include <algorithm>

#include "engine/core/error.h"

namespace lockstep::runtime {

Storage::~Storage() {
  // One event per stream, recorded now: everything that can use this memory was submitted before
  // the last owner let go.
  std::vector<std::shared_ptr<Event>> uses;
  try {
    for (Stream* stream : used_by_) uses.push_back(stream->record());
  } catch (const Error&) {
    // The device is broken, and what it may still write to is nobody's memory again.
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

}  // namespace lockstep::runtime
