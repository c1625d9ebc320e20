// GPUs: how many, what they are like, which is current, and who may read whose memory.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {
namespace {

thread_local int the_current_gpu = 0;

constexpr int kMultiprocessors = 4;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr std::size_t kSharedBytesPerBlock = 48 * 1024;
constexpr std::size_t kMostSharedBytesPerBlock =
    227 * 1024;  // after cudaFuncSetAttribute, as on 9.0

bool is_gpu(int gpu) {
  return gpu >= 0 && static_cast<std::size_t>(gpu) < state().gpus.size();
}

cudaDeviceProp properties(int gpu) {
  cudaDeviceProp result;
  std::memset(&result, 0, sizeof(result));
  std::snprintf(result.name, sizeof(result.name), "Emulated GPU %d", gpu);
  std::memcpy(result.uuid.bytes, "EMULATED GPU", 12);
  result.uuid.bytes[15] = static_cast<char>(gpu);
  result.totalGlobalMem = state().num_bytes_per_gpu;
  result.sharedMemPerBlock = kSharedBytesPerBlock;
  result.sharedMemPerBlockOptin = kMostSharedBytesPerBlock;
  result.sharedMemPerMultiprocessor = 228 * 1024;
  result.regsPerBlock = 65536;
  result.regsPerMultiprocessor = 65536;
  result.warpSize = 32;
  result.memPitch = 0x7fffffff;
  result.maxThreadsPerBlock = 1024;
  result.maxThreadsDim[0] = 1024;
  result.maxThreadsDim[1] = 1024;
  result.maxThreadsDim[2] = 64;
  result.maxGridSize[0] = 0x7fffffff;
  result.maxGridSize[1] = 65535;
  result.maxGridSize[2] = 65535;
  result.totalConstMem = 65536;
  result.major = 9;
  result.minor = 0;
  result.multiProcessorCount = kMultiprocessors;
  result.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  result.maxBlocksPerMultiProcessor = 32;
  result.canMapHostMemory = 1;
  result.concurrentKernels = 1;
  result.asyncEngineCount = 3;
  result.unifiedAddressing = 1;
  result.canUseHostPointerForRegisteredMem = 1;
  result.streamPrioritiesSupported = 1;
  result.hostRegisterSupported = 1;
  result.pciBusID = gpu + 1;
  result.memoryBusWidth = 5120;
  result.l2CacheSize = 50 * 1024 * 1024;
  return result;
}

std::optional<int> attribute(cudaDeviceAttr name, int gpu) {
  const cudaDeviceProp of = properties(gpu);
  switch (name) {
    case cudaDevAttrMaxThreadsPerBlock:
      return of.maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX:
      return of.maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimY:
      return of.maxThreadsDim[1];
    case cudaDevAttrMaxBlockDimZ:
      return of.maxThreadsDim[2];
    case cudaDevAttrMaxGridDimX:
      return of.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
      return of.maxGridSize[1];
    case cudaDevAttrMaxGridDimZ:
      return of.maxGridSize[2];
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(of.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(of.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(of.sharedMemPerMultiprocessor);
    case cudaDevAttrWarpSize:
      return of.warpSize;
    case cudaDevAttrMaxRegistersPerBlock:
      return of.regsPerBlock;
    case cudaDevAttrMultiProcessorCount:
      return of.multiProcessorCount;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return of.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return of.maxBlocksPerMultiProcessor;
    case cudaDevAttrComputeCapabilityMajor:
      return of.major;
    case cudaDevAttrComputeCapabilityMinor:
      return of.minor;
    case cudaDevAttrAsyncEngineCount:
      return of.asyncEngineCount;
    case cudaDevAttrConcurrentKernels:
      return of.concurrentKernels;
    case cudaDevAttrUnifiedAddressing:
      return of.unifiedAddressing;
    case cudaDevAttrCanMapHostMemory:
      return of.canMapHostMemory;
    case cudaDevAttrStreamPrioritiesSupported:
      return of.streamPrioritiesSupported;
    case cudaDevAttrHostRegisterSupported:
      return of.hostRegisterSupported;
    case cudaDevAttrPciBusId:
      return of.pciBusID;
    case cudaDevAttrPciDeviceId:
      return of.pciDeviceID;
    case cudaDevAttrPciDomainId:
      return of.pciDomainID;
    case cudaDevAttrL2CacheSize:
      return of.l2CacheSize;
    case cudaDevAttrGlobalMemoryBusWidth:
      return of.memoryBusWidth;
    case cudaDevAttrClockRate:
      return 1000000;  // kHz
    case cudaDevAttrMemoryClockRate:
      return 1000000;  // kHz
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrComputeMode:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrIntegrated:
    case cudaDevAttrIsMultiGpuBoard:
      return 0;
    default:
      return std::nullopt;
  }
}

}  // namespace

int current_gpu() {
  return the_current_gpu;
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  return api([&] {
    *count = 0;
    if (state().driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
    *count = static_cast<int>(state().gpus.size());
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return api([&] {
    if (state().gpus.empty()) return cudaErrorNoDevice;
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    the_current_gpu = device;
    state().gpus[static_cast<std::size_t>(device)]->has_context = true;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return api([&] {
    if (state().gpus.empty()) return cudaErrorNoDevice;
    *device = the_current_gpu;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return api([&] {
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    *prop = properties(device);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return api([&] {
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    const std::optional<int> found = attribute(attr, device);
    if (!found) return cudaErrorInvalidValue;
    *value = *found;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return api([&] {
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    const int needed = std::snprintf(pciBusId, static_cast<std::size_t>(len), "%04x:%02x:%02x.0", 0,
                                     device + 1, 0);
    return needed < len ? cudaSuccess : cudaErrorInvalidValue;
  });
}

// The version of the headers that the program was compiled with.
cudaError_t CUDARTAPI cudaDriverGetVersion(int* driverVersion) {
  return api([&] {
    *driverVersion = state().driver_version;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* runtimeVersion) {
  return api([&] {
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return api([&] {
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return api([&] {
    if (!is_gpu(device) || !is_gpu(peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = state().peers_are_possible && device != peerDevice ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peerDevice, unsigned flags) {
  return api_on_gpu([&] {
    if (!is_gpu(peerDevice) || peerDevice == the_current_gpu) return cudaErrorInvalidDevice;
    if (flags != 0) return cudaErrorInvalidValue;
    if (!state().peers_are_possible) return cudaErrorPeerAccessUnsupported;
    const std::lock_guard lock(state().mutex);
    auto access =
        state().gpus[static_cast<std::size_t>(the_current_gpu)]->has_access_to.begin() + peerDevice;
    if (*access) return cudaErrorPeerAccessAlreadyEnabled;
    *access = true;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peerDevice) {
  return api_on_gpu([&] {
    if (!is_gpu(peerDevice)) return cudaErrorInvalidDevice;
    const std::lock_guard lock(state().mutex);
    auto access =
        state().gpus[static_cast<std::size_t>(the_current_gpu)]->has_access_to.begin() + peerDevice;
    if (!*access) return cudaErrorPeerAccessNotEnabled;
    *access = false;
    return cudaSuccess;
  });
}

// What a multiprocessor holds by threads and by shared memory; registers are not counted.
cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, const void*,
                                                                    int blockSize,
                                                                    std::size_t dynamicSMemSize) {
  return api([&] {
    if (blockSize <= 0 || blockSize > 1024) return cudaErrorInvalidValue;
    int blocks = std::min(32, kThreadsPerMultiprocessor / blockSize);
    if (dynamicSMemSize > 0) {
      blocks = std::min(blocks, static_cast<int>(228 * 1024 / (dynamicSMemSize + 1024)));
    }
    *numBlocks = blocks;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void* func, cudaFuncAttribute attr, int value) {
  return api([&] {
    const std::lock_guard lock(state().mutex);
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<std::size_t>(value) > kMostSharedBytesPerBlock) {
      return cudaErrorInvalidValue;
    }
    state().max_shared_bytes[func] = value;
    return cudaSuccess;
  });
}
