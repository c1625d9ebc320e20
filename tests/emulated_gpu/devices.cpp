// GPUs: how many, what they are like, which is current, and who may read whose memory.
#include <cstdio>
#include <cstring>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {
namespace {

thread_local int the_current_gpu = 0;

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
  result.major = 9;
  result.minor = 0;
  return result;
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

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return api([&] {
    if (!is_gpu(device) || !is_gpu(peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = state().peers != State::Peers::none && device != peerDevice ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peerDevice, unsigned flags) {
  return api_on_gpu([&] {
    if (!is_gpu(peerDevice) || peerDevice == the_current_gpu) return cudaErrorInvalidDevice;
    if (flags != 0) return cudaErrorInvalidValue;
    if (state().peers == State::Peers::none) return cudaErrorPeerAccessUnsupported;
    if (state().peers == State::Peers::refused) return cudaErrorTooManyPeers;
    const std::lock_guard lock(state().mutex);
    const bool is_new = state().enabled_peers.emplace(the_current_gpu, peerDevice).second;
    return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}
