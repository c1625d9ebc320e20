// Streams and events of a CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <new>

#include "engine/runtime/cuda/device_fault.h"
#include "engine/runtime/stream.h"

namespace lockstep::runtime::cuda {

class CudaStream;

// How long a captured step lasts: what was recorded into it is in use until it is gone. Owned by
// the capture, then by the graph that it became; events that were recorded meanwhile watch it.
struct CaptureLife {};

// The calling thread's active capture, or nullptr.
std::shared_ptr<const CaptureLife>& current_capture();

// Makes a physical GPU the calling thread's current one for a scope. Costs nothing where it is.
// Stands before every call into CUDA: on a thread that has named no GPU, even a question about an
// event would make a context on GPU 0, half a gigabyte large.
class CurrentGpu {
 public:
  explicit CurrentGpu(int gpu);
  // For code that may not throw. Where the GPU has failed, the call that follows says so.
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

  // Not true of an event that was recorded into a graph until the graph is gone: it passes in every
  // launch of the graph.
  bool has_passed() const override;
  // Throws the fault of a kernel that ran before (device_fault.h); Error{Cuda} when the device
  // failed; Error{State} while a step is captured, and for an event that was recorded into a graph.
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
  // gpu: the physical GPU (its CUDA ordinal) that `device` stands for. fault: of the device; lives
  // as long as the stream.
  CudaStream(LogicalDevice& device, int gpu, DeviceFault* fault);
  ~CudaStream() override;

  // Runs issue() now, in this thread, with the stream's GPU current.
  void submit(std::function<void()> issue) override;
  std::shared_ptr<Event> record() override;
  std::shared_ptr<Event> record_timed() override;
  // A CUDA event is waited for by the stream, any other by the calling thread.
  void wait(std::shared_ptr<Event> event) override;

  cudaStream_t handle() const { return stream_; }
  int gpu() const { return gpu_; }
  // Kernels write here what is wrong with their input.
  DeviceFault* fault() const { return fault_; }
  // True while submitted work goes into a graph instead of running.
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
