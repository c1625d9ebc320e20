#include "engine/runtime/cuda_device.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "engine/core/log.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/trace/span.h"

namespace lockstep::runtime {
namespace {

// Lets GPU `from` read and write the memory of GPU `to`, if it can. CUDA may refuse what it
// promised: a GPU has at most eight peers where no NVSwitch connects them.
void enable_peer_access(int from, int to) {
  if (!has_peer_access(from, to)) return;
  const cuda::CurrentGpu current(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaSuccess) return;
  cudaGetLastError();
  if (error == cudaErrorPeerAccessAlreadyEnabled) return;
  const bool is_refused = error == cudaErrorTooManyPeers || error == cudaErrorPeerAccessUnsupported;
  if (!is_refused) cuda::fail_call("cudaDeviceEnablePeerAccess", error);
  deny_peer_access(from, to);
  log_info("GPU {} cannot reach the memory of GPU {} ({}): what it reads there is copied first",
           from, to, cudaGetErrorName(error));
}

// Lets this GPU and those already in use reach each other's memory. GPUs that were never named are
// left alone: access makes a context there, which takes some of their memory, and fails if they are
// full or exclusively used by another process.
void connect_to_gpus_in_use(int gpu) {
  static std::mutex& mutex = *new std::mutex;
  static auto& in_use = *new std::vector<int>;
  const std::lock_guard lock(mutex);
  if (std::ranges::find(in_use, gpu) != in_use.end()) return;
  for (const int other : in_use) {
    enable_peer_access(gpu, other);
    enable_peer_access(other, gpu);
  }
  in_use.push_back(gpu);
}

// Under a profiler (Nsight sets NVTX_INJECTION64_PATH), or with LOCKSTEP_NVTX=1, every ScopedSpan
// is an NVTX range of its thread, so that nsys and ncu show forward, backward and all-reduce next
// to the kernels.
void enable_nvtx_ranges() {
  const char* asked = std::getenv("LOCKSTEP_NVTX");
  const bool is_wanted = asked != nullptr ? std::string_view(asked) == "1"
                                          : std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  if (!is_wanted) return;
  trace::set_range_hooks({[](const char* name) { nvtxRangePushA(name); }, [] { nvtxRangePop(); }});
}

}  // namespace

DeviceParts make_cuda_parts(LogicalDevice& device, int gpu) {
  static std::once_flag once;
  std::call_once(once, enable_nvtx_ranges);
  const cuda::CurrentGpu current(gpu);  // so that pinned memory makes its context here, too
  connect_to_gpus_in_use(gpu);
  cuda::DeviceFault* fault = cuda::make_device_fault();
  DeviceParts parts;
  const std::string name = to_string(device.device());
  parts.memory = make_cuda_memory_pool(name, gpu, nullptr);
  parts.copy_pool = make_cuda_memory_pool(name + " (staging)", gpu, parts.memory.get());
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

bool is_pinned(int gpu, const void* memory) {
  const cuda::CurrentGpu current(gpu);
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeHost;
}

void copy_between(Destination to, Source from, std::size_t num_bytes) {
  if (num_bytes == 0) return;
  Stream& writer = to.device.compute_stream();
  Stream& reader = from.device.compute_stream();
  if (from.device.gpu() == kNoGpu) {
    copy_on_cuda_stream(writer, to.data, from.data, num_bytes);
    // A captured copy happens at each launch, so there is nothing to wait for now.
    if (is_pinned(to.device.gpu(), from.data) && !is_capturing_step()) writer.synchronize();
  } else if (to.device.gpu() == kNoGpu) {
    copy_on_cuda_stream(reader, to.data, from.data, num_bytes);
    reader.synchronize();
  } else {
    if (&writer != &reader) writer.wait(reader.record());
    copy_on_cuda_stream(writer, to.data, from.data, num_bytes);
    if (&writer != &reader) reader.wait(writer.record());
  }
}

}  // namespace lockstep::runtime
