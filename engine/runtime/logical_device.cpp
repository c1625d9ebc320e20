#include "engine/runtime/logical_device.h"

#include <sched.h>

#include <array>
#include <mutex>

#include "engine/core/error.h"
#include "engine/runtime/cpu/cpu_stream.h"

namespace lockstep::runtime {
namespace {

struct Registry {
  std::mutex mutex;
  std::size_t threads_per_device = 1;
  std::array<std::unique_ptr<LogicalDevice>, kMaxCpuDevices> cpu;
  std::array<std::atomic<LogicalDevice*>, kMaxCpuDevices> cpu_lookup{};  // read without the lock
};

Registry& registry() {
  // Never destroyed: tensors in static variables outlive everything that main() leaves behind.
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace

LogicalDevice::LogicalDevice(Device device, std::size_t num_threads)
    : device_(device),
      memory_(make_host_memory_pool(to_string(device))),
      threads_(std::make_unique<ThreadPool>(num_threads)),
      compute_stream_(std::make_unique<CallerStream>(*this)),
      comm_stream_(std::make_unique<WorkerStream>(*this, to_string(device) + " comm")),
      worker_(to_string(device)) {}

LogicalDevice::~LogicalDevice() = default;

void LogicalDevice::set_num_threads(std::size_t num_threads) {
  if (threads_->num_threads() != num_threads) threads_ = std::make_unique<ThreadPool>(num_threads);
}

LogicalDevice& logical_device(Device device) {
  if (device.type != DeviceType::cpu) {
    fail(ErrorCode::Device, "device",
         "{} does not exist: this build has no CUDA; use cpu, or build the cuda preset",
         to_string(device));
  }
  if (device.index < 0 || device.index >= kMaxCpuDevices) {
    fail(ErrorCode::Device, "device", "{} does not exist; cpu:0 to cpu:{} do", to_string(device),
         kMaxCpuDevices - 1);
  }
  Registry& all = registry();
  const auto index = static_cast<std::size_t>(device.index);
  if (LogicalDevice* found = all.cpu_lookup[index].load(std::memory_order_acquire)) return *found;
  std::lock_guard lock(all.mutex);
  if (!all.cpu[index]) {
    all.cpu[index] = std::make_unique<LogicalDevice>(device, all.threads_per_device);
    all.cpu_lookup[index].store(all.cpu[index].get(), std::memory_order_release);
  }
  return *all.cpu[index];
}

int num_devices(DeviceType type) {
  return type == DeviceType::cpu ? kMaxCpuDevices : 0;
}

void set_threads_per_device(std::size_t num_threads) {
  require(num_threads >= 1, ErrorCode::Usage, "threads per device", "must be at least 1");
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  all.threads_per_device = num_threads;
  for (auto& device : all.cpu) {
    if (device) device->set_num_threads(num_threads);
  }
}

std::size_t threads_per_device() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return all.threads_per_device;
}

std::size_t num_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<std::size_t>(count) : 1;
}

}  // namespace lockstep::runtime
