// The devices of DataParallel: checked, and chosen where the options name none.
#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::parallel {
namespace {

std::vector<Device> visible_devices(const nn::Module& module) {
  const std::vector<Variable> parameters = module.parameters();
  const DeviceType type = parameters.empty() ? DeviceType::cpu : parameters[0].device().type;
  const std::size_t count = type == DeviceType::cpu
                                ? std::min<std::size_t>(runtime::num_cores(), 64)
                                : static_cast<std::size_t>(runtime::num_devices(type));
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back({type, static_cast<int>(i)});
  return devices;
}

void require_usable(const std::vector<Device>& devices) {
  std::vector<int> ids;
  for (const Device device : devices) {
    require(device.type == devices[0].type, ErrorCode::Device, "data_parallel",
            "all devices must be of one type, found {} and {}", to_string(devices[0]),
            to_string(device));
    runtime::logical_device(device);  // throws with the devices that exist
    ids.push_back(device.index);
  }
  devices_of(devices[0].type, ids);  // rejects an id that stands twice
}

// The resource that limits a device: its amount and unit.
struct Capacity {
  double amount = 0;
  const char* unit = "threads";
};

Capacity capacity_of(Device device) {
  const runtime::LogicalDevice& logical = runtime::logical_device(device);
  if (logical.gpu() == runtime::kNoGpu) {
    return {static_cast<double>(runtime::logical_device(device).threads().num_threads()),
            "threads"};
  }
  const auto& gpu = runtime::physical_gpus()[static_cast<std::size_t>(logical.gpu())];
  return {static_cast<double>(gpu.memory_bytes >> 20), "MiB of memory"};
}

void warn_if_unbalanced(const std::vector<Device>& devices) {
  const auto amount = [](Device device) { return capacity_of(device).amount; };
  const auto [slowest, fastest] = std::ranges::minmax(devices, {}, amount);
  if (4 * amount(slowest) < 3 * amount(fastest)) {
    log_warning(
        "data_parallel: there is an imbalance between the devices: {} has {} {}, less than "
        "75 % of the {} of {}; every step waits for the slowest, leave it out with device_ids",
        to_string(slowest), amount(slowest), capacity_of(slowest).unit, amount(fastest),
        to_string(fastest));
  }
}

}  // namespace

DataParallelOptions resolve(const DataParallelOptions& options, const nn::Module& module) {
  DataParallelOptions resolved = options;
  if (resolved.devices.empty()) resolved.devices = visible_devices(module);
  require_usable(resolved.devices);
  if (!resolved.output_device) resolved.output_device = resolved.devices[0];
  runtime::logical_device(*resolved.output_device);  // throws with the devices that exist
  warn_if_unbalanced(resolved.devices);
  return resolved;
}

}  // namespace lockstep::parallel
