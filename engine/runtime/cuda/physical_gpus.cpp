#include "engine/runtime/physical_gpus.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "engine/runtime/cuda/check.h"

namespace lockstep::runtime {
namespace {

struct Found {
  std::vector<PhysicalGpu> gpus;
  std::string reason;
};

// Turns 12040 into "12.4".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string reason_for(cudaError_t error) {
  if (error == cudaErrorNoDevice) {
    return "CUDA finds no GPU (CUDA_VISIBLE_DEVICES may hide it; `lockstep devices` shows what it "
           "hides); use cpu";
  }
  int driver = 0;
  int runtime_version = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime_version) != cudaSuccess) runtime_version = 0;
  if (driver == 0) return "no NVIDIA driver is installed; install one, or use cpu";
  if (driver < runtime_version) {
    return fmt::format(
        "the NVIDIA driver serves CUDA {} and this build needs {}; update the driver, or build "
        "with "
        "an older toolkit",
        version_text(driver), version_text(runtime_version));
  }
  return fmt::format("CUDA does not start: {} ({}); use cpu", cudaGetErrorString(error),
                     cudaGetErrorName(error));
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

PhysicalGpu describe(int ordinal) {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  std::array<char, 32> bus_id{};
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal));
  PhysicalGpu gpu;
  gpu.ordinal = ordinal;
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.memory_bytes = properties.totalGlobalMem;
  gpu.uuid = uuid_text(properties.uuid);
  gpu.pci_bus_id = bus_id.data();
  return gpu;
}

// The answers for pairs of GPUs.
struct PeerAccess {
  std::mutex mutex;
  std::map<std::pair<int, int>, bool> known;  // by from and to
};

PeerAccess& peer_access() {
  static PeerAccess& instance = *new PeerAccess;
  return instance;
}

const Found& found() {
  static const Found result = [] {
    Found all;
    // CUDA reads it once, at its first call. With its default, 8, the streams of several logical
    // devices would wait for each other in one queue of the hardware.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
      cudaGetLastError();
      all.reason = reason_for(error == cudaSuccess ? cudaErrorNoDevice : error);
      return all;
    }
    for (int gpu = 0; gpu < count; ++gpu) all.gpus.push_back(describe(gpu));
    return all;
  }();
  return result;
}

}  // namespace

const std::vector<PhysicalGpu>& physical_gpus() {
  return found().gpus;
}

const std::string& no_gpu_reason() {
  return found().reason;
}

bool has_peer_access(int from, int to) {
  if (from == to) return true;
  PeerAccess& all = peer_access();
  const std::lock_guard lock(all.mutex);
  const auto known = all.known.find({from, to});
  if (known != all.known.end()) return known->second;
  int can_access = 0;
  CUDA_CHECK(cudaDeviceCanAccessPeer(&can_access, from, to));
  return all.known[{from, to}] = can_access != 0;
}

void deny_peer_access(int from, int to) {
  PeerAccess& all = peer_access();
  const std::lock_guard lock(all.mutex);
  all.known[{from, to}] = false;
}

}  // namespace lockstep::runtime
