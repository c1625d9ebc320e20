// Events: a recording is the mark of what was queued on a stream at that moment.
#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {

std::shared_ptr<CUevent_st> find_event(cudaEvent_t handle) {
  const auto found = state().events.find(handle);
  return found == state().events.end() ? nullptr : found->second;
}

namespace {

cudaError_t create(cudaEvent_t* handle, unsigned flags) {
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
  if (handle == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  const std::lock_guard lock(state().mutex);
  auto event = std::make_shared<CUevent_st>();
  event->gpu = current_gpu();
  event->flags = flags;
  *handle = event.get();
  state().events[*handle] = std::move(event);
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t event_handle, cudaStream_t stream_handle) {
  const std::lock_guard lock(state().mutex);
  const auto event = find_event(event_handle);
  const auto stream = find_stream(stream_handle);
  if (!event || !stream || event->gpu != stream->gpu) return cudaErrorInvalidResourceHandle;
  if (is_capturing(*stream)) {
    if (stream->position.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    event->position = stream->position;
    return cudaSuccess;
  }
  event->position = {};
  event->mark = enqueue(*stream, [] {});
  return cudaSuccess;
}

// The event's recording, or why it cannot be asked for now.
cudaError_t recording(cudaEvent_t handle, std::shared_ptr<CUevent_st>& event,
                      std::shared_ptr<Mark>& mark) {
  const std::lock_guard lock(state().mutex);
  event = find_event(handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (const auto& capture = event->position.capture) {
    invalidate(*capture);
    return cudaErrorCapturedEvent;
  }
  if (const cudaError_t error = check_call_is_safe(); error != cudaSuccess) return error;
  mark = event->mark;
  return cudaSuccess;
}

cudaError_t fault_of(const CUevent_st& event) {
  return state().gpus[static_cast<std::size_t>(event.gpu)]->fault;
}

}  // namespace
}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api_on_gpu([&] { return create(event, flags); });
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api_on_gpu([&] { return record(event, stream); });
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t handle) {
  return api_on_gpu([&] {
    std::shared_ptr<CUevent_st> event;
    std::shared_ptr<Mark> mark;
    if (const cudaError_t error = recording(handle, event, mark); error != cudaSuccess)
      return error;
    if (mark && !mark->has_passed()) return cudaErrorNotReady;
    return fault_of(*event);
  });
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t handle) {
  return api_on_gpu([&] {
    std::shared_ptr<CUevent_st> event;
    std::shared_ptr<Mark> mark;
    if (const cudaError_t error = recording(handle, event, mark); error != cudaSuccess)
      return error;
    if (mark) mark->wait();
    return fault_of(*event);
  });
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return api_on_gpu([&] {
    std::shared_ptr<CUevent_st> events[2];
    std::shared_ptr<Mark> marks[2];
    for (int i = 0; i < 2; ++i) {
      const cudaError_t error = recording(i == 0 ? start : end, events[i], marks[i]);
      if (error != cudaSuccess) return error;
      if (!marks[i] || (events[i]->flags & cudaEventDisableTiming) != 0) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (events[0]->gpu != events[1]->gpu) return cudaErrorInvalidResourceHandle;
    if (!marks[0]->has_passed() || !marks[1]->has_passed()) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(marks[1]->time() - marks[0]->time()).count();
    return fault_of(*events[0]);
  });
}
