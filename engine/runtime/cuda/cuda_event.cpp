#include <array>
#include <mutex>
#include <vector>

#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/wait.h"

namespace lockstep::runtime::cuda {
namespace {

// cudaEvent_t that nobody uses, by GPU: making one takes longer than a small kernel.
class SpareEvents {
 public:
  cudaEvent_t take(int gpu, CudaEvent::Timing timing) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<cudaEvent_t>& spare = spare_of(gpu, timing);
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
    spare_of(gpu, timing).push_back(event);
  }

 private:
  std::vector<cudaEvent_t>& spare_of(int gpu, CudaEvent::Timing timing) {
    const auto index = static_cast<std::size_t>(gpu);
    if (index >= events_.size()) events_.resize(index + 1);
    return events_[index][timing == CudaEvent::Timing::on ? 1 : 0];
  }

  std::mutex mutex_;
  std::vector<std::array<std::vector<cudaEvent_t>, 2>> events_;
};

// Never destroyed: tensors in static variables let their events go at the very end.
SpareEvents& spare_events() {
  static SpareEvents& events = *new SpareEvents;
  return events;
}

}  // namespace

CudaEvent::CudaEvent(const CudaStream& stream, Timing timing)
    : gpu_(stream.gpu()),
      fault_(stream.fault()),
      timing_(timing),
      is_captured_(stream.is_capturing()),
      event_(spare_events().take(gpu_, timing)) {
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
  if (is_captured_) return false;
  // After a failure of the device nothing runs any more, so nothing is waited for.
  return cudaEventQuery(event_) != cudaErrorNotReady;
}

bool CudaEvent::wait(Deadline deadline) const {
  require(!is_captured_, ErrorCode::State, "event",
          "was recorded while a graph was captured, so the calling thread cannot wait for it");
  if (!deadline) {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  } else {
    for (unsigned round = 0; !has_passed(); ++round) {
      if (Clock::now() >= *deadline) return false;
      spin_pause(round);
    }
    check(cudaEventQuery(event_), "cudaEventQuery");
  }
  throw_if_written(*fault_);
  return true;
}

double CudaEvent::seconds_since(const CudaEvent& earlier) const {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace lockstep::runtime::cuda
