#include "tools/training/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/virtual_devices.h"
#include "kernels/matmul_precision.h"
#include "tools/cli/numbers.h"

namespace lockstep::tools {
namespace {

// "cpu:0 to cpu:63 do", "only cuda:0 does".
std::string existing(DeviceType type) {
  const int count = runtime::num_devices(type);
  const std::string_view name = lockstep::to_string(type);
  return count == 1 ? fmt::format("only {}:0 does", name)
                    : fmt::format("{}:0 to {}:{} do", name, name, count - 1);
}

// What to do about a logical GPU that does not exist.
std::string virtual_hint(DeviceType type, std::size_t count) {
  if (type == DeviceType::cpu) return {};
  return fmt::format("; several logical devices on one GPU: --virtual-devices 'cuda:0*{}'", count);
}

std::vector<int> listed_ids(const TrainingFlags& flags, DeviceType type) {
  const auto num_existing = static_cast<std::size_t>(runtime::num_devices(type));
  std::vector<int> ids;
  for (const std::size_t id : parse_list("--device-ids", flags.device_ids)) {
    require(id < num_existing, ErrorCode::Usage, "--device-ids", "{}:{} does not exist; {}{}",
            lockstep::to_string(type), id, existing(type), virtual_hint(type, id + 1));
    require(std::find(ids.begin(), ids.end(), static_cast<int>(id)) == ids.end(), ErrorCode::Usage,
            "--device-ids", "{} stands twice in '{}'; name each device once", id, flags.device_ids);
    ids.push_back(static_cast<int>(id));
  }
  return ids;
}

std::string describe_cpu(std::size_t num_devices) {
  const std::size_t cores = runtime::num_cores();
  const std::size_t threads = runtime::threads_per_device();
  return fmt::format("{} {} {}, {} {}{}", num_devices == 1 ? "on" : "virtual, on", cores,
                     cores == 1 ? "core" : "cores", threads, threads == 1 ? "thread" : "threads",
                     num_devices == 1 ? "" : " each");
}

std::string describe_gpus(const std::vector<Device>& devices) {
  const std::size_t num_gpus = num_physical_devices(devices);
  const int first = runtime::logical_device(devices[0]).gpu();
  const std::string& name = runtime::physical_gpus()[static_cast<std::size_t>(first)].name;
  if (num_gpus == devices.size()) return name;
  return num_gpus == 1 ? fmt::format("virtual, on one {}", name)
                       : fmt::format("virtual, on {} GPUs, the first a {}", num_gpus, name);
}

}  // namespace

DeviceType resolve_device_type(const TrainingFlags& flags) {
  kernels::set_matmul_precision(kernels::parse_matmul_precision(flags.matmul_precision));
  const bool has_gpu = !runtime::physical_gpus().empty();
  if (flags.device == "cuda" && !has_gpu) {
    fail(ErrorCode::Device, "--device", "cuda was asked for: {}", runtime::no_gpu_reason());
  }
  const DeviceType type = flags.device == "cpu" || !has_gpu ? DeviceType::cpu : DeviceType::cuda;
  if (!flags.virtual_devices.empty()) {
    require(type == DeviceType::cuda, ErrorCode::Usage, "--virtual-devices",
            "'{}' shares a GPU, and {}; CPU devices cpu:0 to cpu:{} are virtual already, just name "
            "or count them",
            flags.virtual_devices,
            flags.device == "cpu" ? std::string("--device is cpu") : runtime::no_gpu_reason(),
            runtime::kMaxCpuDevices - 1);
    runtime::set_virtual_devices(flags.virtual_devices);
  }
  return type;
}

std::vector<Device> resolve_devices(const TrainingFlags& flags, DeviceType type) {
  if (!flags.device_ids.empty()) return devices_of(type, listed_ids(flags, type));
  const auto num_existing = static_cast<std::size_t>(runtime::num_devices(type));
  const std::size_t count = require_positive("--devices", flags.devices.value_or(1));
  require(count <= num_existing, ErrorCode::Usage, "--devices",
          "there are {} {} devices, asked for {}{}", num_existing, lockstep::to_string(type), count,
          virtual_hint(type, count));
  std::vector<int> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<int>(i));
  return devices_of(type, ids);
}

void apply_threads_per_device(const TrainingFlags& flags, std::size_t num_devices) {
  std::size_t threads = std::max<std::size_t>(1, runtime::num_cores() / num_devices);
  if (flags.threads_per_device) {
    threads = require_positive("--threads-per-device", *flags.threads_per_device);
    require(threads <= 1024, ErrorCode::Usage, "--threads-per-device", "at most 1024, found {}",
            threads);
  }
  if (flags.bitwise) threads = 1;
  runtime::set_threads_per_device(threads);
}

std::string describe_devices(const std::vector<Device>& devices) {
  std::string names;
  for (const Device device : devices) {
    names += (names.empty() ? "" : ", ") + lockstep::to_string(device);
  }
  const bool is_cpu = devices[0].type == DeviceType::cpu;
  return fmt::format("using device: {} ({})", names,
                     is_cpu ? describe_cpu(devices.size()) : describe_gpus(devices));
}

std::size_t num_physical_devices(const std::vector<Device>& devices) {
  std::set<int> gpus;
  for (const Device device : devices) gpus.insert(runtime::logical_device(device).gpu());
  return gpus.size();
}

std::size_t num_physical_devices(const DevicePlacement& placement) {
  return placement.num_physical.value_or(num_physical_devices(placement.devices));
}

}  // namespace lockstep::tools
