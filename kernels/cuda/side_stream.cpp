#include "kernels/cuda/side_stream.h"

#include <map>
#include <mutex>

#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/step_graph.h"

namespace lockstep::kernels::cuda {

runtime::Stream* side_stream(runtime::Stream& stream) {
  if (!runtime::is_capturing_step()) return nullptr;
  const runtime::cuda::CudaStream& of = runtime::cuda::cuda_stream(stream);
  if (!of.is_capturing()) return nullptr;
  static std::mutex& mutex = *new std::mutex;
  static auto& streams = *new std::map<const runtime::Stream*, runtime::cuda::CudaStream*>;
  const std::lock_guard lock(mutex);
  runtime::cuda::CudaStream*& found = streams[&stream];
  if (found != nullptr) return found;
  // A new stream belongs to no graph, so the capture has nothing against it.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  found = new runtime::cuda::CudaStream(stream.device(), of.gpu(), of.fault());
  CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  return found;
}

}  // namespace lockstep::kernels::cuda
