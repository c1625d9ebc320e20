#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/wait.h"
#include "engine/trace/span.h"

namespace lockstep::runtime::cuda {
namespace {

// Unused events of each GPU: making one takes longer than a small kernel.
class SpareEvents {
 public:
  cudaEvent_t take(int gpu, CudaEvent::Timing timing) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<cudaEvent_t>& spare = events_[{gpu, timing}];
      if (!spare.empty()) {
        cudaEvent_t event = spare.back();
        spare.pop_back();
        return event;
      }
    }
    const CurrentGpu current(gpu);
    cudaEvent_t event = nullptr;
    const unsigned flags =
        timing == CudaEvent::Timing::on ? cudaEventDefault : cudaEventDisableTiming;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
    return event;
  }
  void give_back(int gpu, CudaEvent::Timing timing, cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    events_[{gpu, timing}].push_back(event);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, CudaEvent::Timing>, std::vector<cudaEvent_t>> events_;
};

// Never destroyed: tensors in static variables release their events at the very end.
SpareEvents& spare_events() {
  static SpareEvents& events = *new SpareEvents;
  return events;
}

// A moment of a GPU and the same moment of the host, from which an event's time is computed. It is
// taken on an idle stream, so the two are a few microseconds apart. A thread that loses its core in
// between would shift every span, so the best of a few attempts counts.
class ClockAnchor {
 public:
  explicit ClockAnchor(int gpu) : gpu_(gpu) {
    const CurrentGpu current(gpu);
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDefault));
    CUDA_CHECK(cudaEventCreateWithFlags(&next_, cudaEventDefault));
    take();
  }

  std::int64_t host_ns_of(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    double milliseconds = milliseconds_to(event);
    // CUDA answers in float, which is exact to 60 ns within a second and to 8 us within 100.
    if (std::abs(milliseconds) > 1000) {
      take();
      milliseconds = milliseconds_to(event);
    }
    return host_ns_ + static_cast<std::int64_t>(milliseconds * 1e6);
  }

 private:
  static constexpr int kNumAttempts = 5;

  void take() {
    const CurrentGpu current(gpu_);
    std::int64_t best_ns = std::numeric_limits<std::int64_t>::max();
    for (int attempt = 0; attempt < kNumAttempts; ++attempt) {
      const std::int64_t before = trace::now_ns();
      CUDA_CHECK(cudaEventRecord(next_, stream_));
      CUDA_CHECK(cudaEventSynchronize(next_));
      const std::int64_t taken_ns = trace::now_ns() - before;
      if (taken_ns >= best_ns) continue;
      best_ns = taken_ns;
      host_ns_ = before + taken_ns / 2;
      std::swap(event_, next_);
    }
  }
  double milliseconds_to(cudaEvent_t event) const {
    const CurrentGpu current(gpu_);
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_, event));
    return milliseconds;
  }

  int gpu_;
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  cudaEvent_t next_ = nullptr;
  std::int64_t host_ns_ = 0;  // the host's time at event_
};

ClockAnchor& clock_anchor(int gpu) {
  static std::mutex mutex;
  static auto& anchors = *new std::map<int, std::unique_ptr<ClockAnchor>>;  // never destroyed
  const std::lock_guard lock(mutex);
  std::unique_ptr<ClockAnchor>& anchor = anchors[gpu];
  if (!anchor) anchor = std::make_unique<ClockAnchor>(gpu);
  return *anchor;
}

// The lifetime of a capture that is not a StepGraph's: its events never pass.
const std::shared_ptr<const CaptureLife>& endless_capture() {
  static const auto& life = *new std::shared_ptr<const CaptureLife>(new CaptureLife);
  return life;
}

}  // namespace

CudaEvent::CudaEvent(const CudaStream& stream, Timing timing)
    : gpu_(stream.gpu()),
      fault_(stream.fault()),
      timing_(timing),
      is_captured_(stream.is_capturing()),
      event_(spare_events().take(gpu_, timing)) {
  if (is_captured_) capture_ = current_capture() ? current_capture() : endless_capture();
  const CurrentGpu current(gpu_);
  const cudaError_t recorded = cudaEventRecord(event_, stream.handle());
  if (recorded == cudaSuccess) return;
  spare_events().give_back(gpu_, timing_, event_);
  fail_call("cudaEventRecord", recorded);
}

CudaEvent::~CudaEvent() {
  spare_events().give_back(gpu_, timing_, event_);
}

bool CudaEvent::has_passed() const {
  if (is_captured_) return capture_.expired();
  const CurrentGpu current(gpu_, std::nothrow);
  // While a thread captures a graph, CUDA lets it ask about other events only in relaxed mode.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ignore(cudaThreadExchangeStreamCaptureMode(&mode));
  const cudaError_t found = cudaEventQuery(event_);
  ignore(cudaThreadExchangeStreamCaptureMode(&mode));
  // After a failure of the device nothing runs any more, so there is nothing to wait for.
  return found != cudaErrorNotReady;
}

bool CudaEvent::wait(Deadline deadline) const {
  require(!is_captured_ && !is_capturing_step(), ErrorCode::State, "event",
          "a step that is captured as a graph may not wait for the device: read losses and copy to "
          "the CPU outside of it, or run the step without a graph");
  const CurrentGpu current(gpu_);
  if (!deadline) {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  } else {
    for (unsigned round = 0; !has_passed(); ++round) {
      if (runtime::has_passed(deadline)) return false;
      poll_pause(round);
    }
    check(cudaEventQuery(event_), "cudaEventQuery");
  }
  throw_if_written(*fault_);
  return true;
}

void CudaEvent::wait_quietly() const noexcept {
  if (is_captured_) return;
  const CurrentGpu current(gpu_, std::nothrow);
  ignore(cudaEventSynchronize(event_));
}

std::int64_t CudaEvent::passed_at_ns() const {
  return clock_anchor(gpu_).host_ns_of(event_);
}

double CudaEvent::seconds_since(const CudaEvent& earlier) const {
  const CurrentGpu current(gpu_);
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace lockstep::runtime::cuda
