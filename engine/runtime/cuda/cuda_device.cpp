#include "engine/runtime/cuda_device.h"

#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::runtime {
namespace {

// Lets this GPU read and write the memory of all others that it can reach. Once per GPU.
void enable_peer_access(int gpu) {
  const cuda::CurrentGpu current(gpu);
  for (const PhysicalGpu& other : physical_gpus()) {
    if (other.ordinal == gpu || !has_peer_access(gpu, other.ordinal)) continue;
    const cudaError_t error = cudaDeviceEnablePeerAccess(other.ordinal, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else {
      cuda::check(error, "cudaDeviceEnablePeerAccess");
    }
  }
}

}  // namespace

DeviceParts make_cuda_parts(LogicalDevice& device, int gpu) {
  enable_peer_access(gpu);
  cuda::DeviceFault* fault = cuda::make_device_fault();
  DeviceParts parts;
  parts.memory = make_cuda_memory_pool(to_string(device.device()), gpu);
  parts.compute_stream = std::make_unique<cuda::CudaStream>(device, gpu, fault);
  parts.comm_stream = std::make_unique<cuda::CudaStream>(device, gpu, fault);
  parts.copy_stream = std::make_unique<cuda::CudaStream>(device, gpu, fault);
  return parts;
}

void copy_on_cuda_stream(Stream& stream, void* to, const void* from, std::size_t num_bytes) {
  if (num_bytes == 0) return;
  const cuda::CudaStream& on = cuda::cuda_stream(stream);
  const cuda::CurrentGpu current(on.gpu());
  CUDA_CHECK(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDefault, on.handle()));
}

}  // namespace lockstep::runtime
