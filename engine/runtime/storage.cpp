#include "engine/runtime/storage.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/step_graph.h"

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

namespace {

bool is_cuda(const LogicalDevice& device) {
  return device.device().type == DeviceType::cuda;
}

}  // namespace

void copy_between(Destination to, Source from, std::size_t num_bytes) {
  if (num_bytes == 0) return;
  Stream& writer = to.device.compute_stream();
  Stream& reader = from.device.compute_stream();
  if (!is_cuda(from.device)) {
    copy_on_cuda_stream(writer, to.data, from.data, num_bytes);
    // A copy that is captured happens at each launch: there is nothing to wait for now.
    if (is_pinned(to.device.gpu(), from.data) && !is_capturing_step()) writer.synchronize();
  } else if (!is_cuda(to.device)) {
    copy_on_cuda_stream(reader, to.data, from.data, num_bytes);
    reader.synchronize();
  } else {
    if (&writer != &reader) writer.wait(reader.record());
    copy_on_cuda_stream(writer, to.data, from.data, num_bytes);
    if (&writer != &reader) reader.wait(writer.record());
  }
}

}  // namespace lockstep::runtime
