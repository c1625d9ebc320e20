#include "engine/runtime/cuda/cuda_stream.h"

#include "engine/runtime/cuda/check.h"

namespace lockstep::runtime::cuda {
namespace {

constexpr int kUnknown = -1;

// The thread's current GPU, as cudaGetDevice() reports it. Only this file changes it.
int& current_gpu() {
  thread_local int gpu = kUnknown;
  return gpu;
}

void make_current(int gpu) {
  CUDA_CHECK(cudaSetDevice(gpu));
  current_gpu() = gpu;
}

}  // namespace

std::shared_ptr<const CaptureLife>& current_capture() {
  thread_local std::shared_ptr<const CaptureLife> capture;
  return capture;
}

CurrentGpu::CurrentGpu(int gpu) : saved_(current_gpu()) {
  if (saved_ != gpu) make_current(gpu);
  if (saved_ == kUnknown) saved_ = gpu;
}

CurrentGpu::CurrentGpu(int gpu, std::nothrow_t) noexcept : saved_(current_gpu()) {
  if (saved_ != gpu && cudaSetDevice(gpu) == cudaSuccess) current_gpu() = gpu;
  if (saved_ == kUnknown) saved_ = current_gpu();
}

CurrentGpu::~CurrentGpu() {
  if (current_gpu() == saved_) return;
  ignore(cudaSetDevice(saved_));
  current_gpu() = saved_;
}

CudaStream::CudaStream(LogicalDevice& device, int gpu, DeviceFault* fault)
    : Stream(device), gpu_(gpu), fault_(fault) {
  const CurrentGpu current(gpu);
  // Not ordered with the legacy default stream, which would order all streams with each other.
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  const CurrentGpu current(gpu_, std::nothrow);
  ignore(cudaStreamDestroy(stream_));
}

std::shared_ptr<Event> CudaStream::record() {
  return std::make_shared<CudaEvent>(*this);
}

std::shared_ptr<Event> CudaStream::record_timed() {
  if (is_capturing()) return nullptr;
  return std::make_shared<CudaEvent>(*this, CudaEvent::Timing::on);
}

void CudaStream::wait(std::shared_ptr<Event> event) {
  const auto* on_device = dynamic_cast<const CudaEvent*>(event.get());
  if (on_device == nullptr) {
    event->wait();
    return;
  }
  const CurrentGpu current(gpu_);
  CUDA_CHECK(cudaStreamWaitEvent(stream_, on_device->handle(), 0));
}

bool CudaStream::is_capturing() const {
  const CurrentGpu current(gpu_);  // another GPU's failure is not this stream's
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace lockstep::runtime::cuda
