// Streams and events of a CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <new>

#include "engine/runtime/cuda/device_fault.h"
#include "engine/runtime/stream.h"

namespace lockstep::runtime::cuda {

class CudaStream;

// The lifetime of a captured step: whatever was recorded into it is in use until it ends. The
// capture owns it, then the graph made from it; events that were recorded in between watch it.
struct CaptureLife {};

// The calling thread's active capture, or nullptr.
std::shared_ptr<const CaptureLife>& current_capture();

// Makes a physical GPU the calling thread's current one for a scope; costs nothing if it already
// is. It precedes every call into CUDA: on a thread that has named no GPU, even a question about an
// event would make a context on GPU 0, half a gigabyte large.
class CurrentGpu {
 public:
  explicit CurrentGpu(int gpu);
  // For code that may not throw. If the GPU has failed, the next call reports it.
  CurrentGpu(int gpu, std::nothrow_t) noexcept;
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int saved_;
};

// A cudaEvent_t that passes when the work before it is done.
class CudaEvent final : public Event {
 public:
  enum class Timing { off, on };  // `on` events can be subtracted: seconds_since

  // Records it on a stream.
  explicit CudaEvent(const CudaStream& stream, Timing timing = Timing::off);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  // False for an event that was recorded into a graph until the graph is gone, because it passes in
  // every launch of the graph.
  bool has_passed() const override;
  // Throws the fault of an earlier kernel (device_fault.h); Error{Cuda} if the device failed;
  // Error{State} while a step is captured, and for an event that was recorded into a graph.
  bool wait(Deadline deadline = {}) const override;
  void wait_quietly() const noexcept override;

  cudaEvent_t handle() const { return event_; }
  std::int64_t passed_at_ns() const override;
  // REQUIRES: both have passed and were made with Timing::on.
  double seconds_since(const CudaEvent& earlier) const;

 private:
  int gpu_;
  DeviceFault* fault_;
  Timing timing_;
  bool is_captured_ = false;
  std::weak_ptr<const CaptureLife> capture_;  // expired: the graph is gone
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  // gpu: the physical GPU (its CUDA ordinal) behind `device`. fault: the device's; it must outlive
  // the stream.
  CudaStream(LogicalDevice& device, int gpu, DeviceFault* fault);
  ~CudaStream() override;

  std::shared_ptr<Event> record() override;
  std::shared_ptr<Event> record_timed() override;
  // The stream waits for a CUDA event, the calling thread for any other.
  void wait(std::shared_ptr<Event> event) override;

  cudaStream_t handle() const { return stream_; }
  int gpu() const { return gpu_; }
  // Kernels report errors in their input here.
  DeviceFault* fault() const { return fault_; }
  // True while work goes into a graph instead of running.
  bool is_capturing() const;

 private:
  int gpu_;
  DeviceFault* fault_;
  cudaStream_t stream_ = nullptr;
};

// REQUIRES: the stream belongs to a CUDA device.
inline CudaStream& cuda_stream(Stream& stream) {
  return static_cast<CudaStream&>(stream);
}

}  // namespace lockstep::runtime::cuda
