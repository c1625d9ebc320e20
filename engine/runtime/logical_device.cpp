#include "engine/runtime/logical_device.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "engine/core/error.h"

namespace lockstep::runtime {

namespace {

constexpr std::size_t kMaxDevices = std::max(kMaxCpuDevices, kMaxCudaDevices);

// All devices, made when first named; reading needs no lock. Never destroyed, because tensors in
// static variables outlive main().
struct Registry {
  std::mutex mutex;  // held to make a device
  std::size_t threads_per_device = 1;
  std::array<std::atomic<LogicalDevice*>, kMaxDevices> cpu{};
  std::array<std::atomic<LogicalDevice*>, kMaxDevices> cuda{};

  // REQUIRES: 0 <= index < kMaxDevices.
  std::atomic<LogicalDevice*>& place_of(Device device) {
    return (device.type == DeviceType::cpu ? cpu : cuda)[static_cast<std::size_t>(device.index)];
  }
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// Throws unless the device exists; returns its GPU, or kNoGpu.
int gpu_of(Device device) {
  if (device.type == DeviceType::cpu) {
    require(device.index >= 0 && device.index < kMaxCpuDevices, ErrorCode::Device, "device",
            "{} does not exist; cpu:0 to cpu:{} do", to_string(device), kMaxCpuDevices - 1);
    return kNoGpu;
  }
  return gpu_behind(device);
}

}  // namespace

LogicalDevice::LogicalDevice(Device device, std::size_t num_threads)
    : device_(device),
      memory_(make_host_memory_pool(to_string(device))),
      current_memory_(memory_.get()),
      threads_(std::make_unique<ThreadPool>(num_threads)),
      compute_stream_(make_caller_stream(*this)),
      comm_stream_(make_caller_stream(*this)),
      copy_stream_(make_caller_stream(*this)),
      worker_(to_string(device)) {}

LogicalDevice::~LogicalDevice() = default;

void LogicalDevice::set_num_threads(std::size_t num_threads) {
  if (threads_->num_threads() != num_threads) threads_ = std::make_unique<ThreadPool>(num_threads);
}

LogicalDevice& logical_device(Device device) {
  Registry& all = registry();
  if (device.index >= 0 && device.index < static_cast<int>(kMaxDevices)) [[likely]] {
    LogicalDevice* found = all.place_of(device).load(std::memory_order_acquire);
    if (found != nullptr) return *found;
  }
  const int gpu = gpu_of(device);
  const std::lock_guard lock(all.mutex);
  std::atomic<LogicalDevice*>& place = all.place_of(device);
  if (place == nullptr) {
    place = gpu == kNoGpu ? new LogicalDevice(device, all.threads_per_device)
                          : new LogicalDevice(device, LogicalDevice::OnGpu{gpu});
  }
  return *place;
}

bool has_cuda_devices_in_use() {
  return std::ranges::any_of(registry().cuda, [](const auto& device) { return device != nullptr; });
}

void set_threads_per_device(std::size_t num_threads) {
  require(num_threads >= 1, ErrorCode::Usage, "threads per device", "must be at least 1");
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  all.threads_per_device = num_threads;
  for (LogicalDevice* device : all.cpu) {
    if (device != nullptr) device->set_num_threads(num_threads);
  }
}

std::size_t threads_per_device() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return all.threads_per_device;
}

}  // namespace lockstep::runtime
