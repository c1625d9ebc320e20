// Stream capture: which streams take part, what waits for what, and what is not allowed meanwhile.
#include <algorithm>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {
namespace {

thread_local cudaStreamCaptureMode the_capture_mode = cudaStreamCaptureModeGlobal;

std::vector<std::shared_ptr<Capture>> ongoing_captures() {
  std::erase_if(state().captures, [](const std::weak_ptr<Capture>& capture) {
    return capture.expired() || capture.lock()->has_ended;
  });
  std::vector<std::shared_ptr<Capture>> result;
  for (const auto& capture : state().captures) result.push_back(capture.lock());
  return result;
}

// True if a potentially unsafe call breaks the capture, by the rules in the documentation of
// cudaThreadExchangeStreamCaptureMode: a relaxed thread may call anything; else the thread's own
// captures forbid it unless they are relaxed; and a thread in mode global also respects the global
// captures of others.
bool forbids_unsafe_calls(const Capture& capture) {
  if (the_capture_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return the_capture_mode == cudaStreamCaptureModeGlobal &&
         capture.mode == cudaStreamCaptureModeGlobal;
}

// Which nodes are among the given ones or before them.
std::vector<bool> nodes_before(const CUgraph_st& graph, const std::vector<std::size_t>& last) {
  std::vector<bool> result(graph.nodes.size());
  for (const std::size_t node : last) result[node] = true;
  for (std::size_t node = graph.nodes.size(); node-- > 0;) {
    if (!result[node]) continue;
    for (const std::size_t earlier : graph.nodes[node]->dependencies) result[earlier] = true;
  }
  return result;
}

// Work that the origin stream has not waited for.
bool has_unjoined_work(const Capture& capture, const CUstream_st& origin) {
  const std::vector<bool> joined = nodes_before(*capture.graph, origin.position.frontier);
  return std::find(joined.begin(), joined.end(), false) != joined.end();
}

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (is_capturing(*stream)) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = handle;
  capture->streams = {handle};
  state().captures.push_back(capture);
  stream->position = {std::move(capture), {}};
  return cudaSuccess;
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  const std::lock_guard lock(state().mutex);
  if (graph != nullptr) *graph = nullptr;
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!is_capturing(*stream)) return cudaErrorIllegalState;
  const std::shared_ptr<Capture> capture = stream->position.capture;
  if (capture->origin != handle) {
    invalidate(*capture);
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  cudaError_t error = cudaSuccess;
  if (capture->is_invalid) {
    error = cudaErrorStreamCaptureInvalidated;
  } else if (has_unjoined_work(*capture, *stream)) {
    error = cudaErrorStreamCaptureUnjoined;
  }
  capture->has_ended = true;
  for (auto& [other_handle, other] : state().streams) {
    if (other->position.capture == capture) other->position = {};
  }
  if (error != cudaSuccess) return error;
  capture->graph->num_lanes = capture->streams.size();
  if (graph != nullptr) *graph = capture->graph.release();
  return cudaSuccess;
}

cudaError_t wait_in_capture(CUstream_st& stream, const CUevent_st& event) {
  const auto& of_event = event.position.capture;
  if (of_event->has_ended) return cudaErrorCapturedEvent;
  if (of_event->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (!is_capturing(stream)) {
    stream.position = event.position;  // the stream joins
    of_event->streams.push_back(&stream);
    return cudaSuccess;
  }
  if (stream.position.capture != of_event) {
    invalidate(*stream.position.capture);
    invalidate(*of_event);
    return cudaErrorStreamCaptureMerge;
  }
  std::vector<std::size_t>& frontier = stream.position.frontier;
  for (const std::size_t node : event.position.frontier) {
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) {
      frontier.push_back(node);
    }
  }
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t stream_handle, cudaEvent_t event_handle) {
  const std::lock_guard lock(state().mutex);
  const auto stream = find_stream(stream_handle);
  const auto event = find_event(event_handle);
  if (!stream || !event) return cudaErrorInvalidResourceHandle;
  if (event->position.capture) return wait_in_capture(*stream, *event);
  if (!event->mark) return cudaSuccess;
  if (is_capturing(*stream)) {
    invalidate(*stream->position.capture);
    return cudaErrorStreamCaptureIsolation;
  }
  enqueue(*stream, [mark = event->mark] { mark->wait(); });
  return cudaSuccess;
}

}  // namespace

cudaStreamCaptureMode& capture_mode() {
  return the_capture_mode;
}

bool is_capturing(const CUstream_st& stream) {
  return stream.position.capture != nullptr;
}

void invalidate(Capture& capture) {
  capture.is_invalid = true;
}

void leave_capture(CUstream_st& stream) {
  stream.position = {};
}

std::size_t lane_of(Capture& capture, cudaStream_t stream) {
  const auto found = std::find(capture.streams.begin(), capture.streams.end(), stream);
  return static_cast<std::size_t>(found - capture.streams.begin());
}

cudaError_t check_call_is_safe() {
  cudaError_t result = cudaSuccess;
  for (const auto& capture : ongoing_captures()) {
    if (!forbids_unsafe_calls(*capture)) continue;
    invalidate(*capture);
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

cudaError_t check_not_capturing(const CUstream_st& stream) {
  if (is_capturing(stream)) {
    invalidate(*stream.position.capture);
    return cudaErrorStreamCaptureUnsupported;
  }
  return check_call_is_safe();
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api_on_gpu([&] { return begin(stream, mode); });
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  return api_on_gpu([&] { return end(stream, pGraph); });
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return api_on_gpu(
      [&] { return flags == cudaEventWaitDefault ? wait(stream, event) : cudaErrorNotSupported; });
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api_on_gpu([&] {
    const std::lock_guard lock(state().mutex);
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const auto& capture = stream->position.capture;
    *status = !capture              ? cudaStreamCaptureStatusNone
              : capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return api([&] {
    if (!state().gpus.empty()) {
      state().gpus[static_cast<std::size_t>(current_gpu())]->has_context = true;
    }
    std::swap(*mode, the_capture_mode);
    return cudaSuccess;
  });
}
