#include "tutorials/devices.h"

#include <fmt/format.h>

#include <set>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/threads.h"

namespace lockstep::tutorial {
namespace {

// "cuda:0*3,cuda:1*2": five logical devices on two GPUs.
std::string spread_over_gpus(std::size_t num_devices, std::size_t num_gpus) {
  std::string text;
  for (std::size_t gpu = 0; gpu < num_gpus; ++gpu) {
    const std::size_t count = num_devices / num_gpus + (gpu < num_devices % num_gpus ? 1 : 0);
    text += fmt::format("{}cuda:{}*{}", gpu == 0 ? "" : ",", gpu, count);
  }
  return text;
}

// Asks the GPU nothing, because ranks that this program has yet to start may use it.
int gpu_of(Device device) {
  return runtime::logical_gpus().at(static_cast<std::size_t>(device.index));
}

std::size_t num_gpus_of(const std::vector<Device>& devices) {
  std::set<int> gpus;
  for (const Device device : devices) gpus.insert(gpu_of(device));
  return gpus.size();
}

std::string count_cores() {
  const std::size_t cores = runtime::num_cores();
  return cores == 1 ? "1 core" : fmt::format("{} cores", cores);
}

}  // namespace

DeviceType resolve_device_type(const std::string& device) {
  const bool has_gpu = !runtime::physical_gpus().empty();
  require(device != "cuda" || has_gpu, ErrorCode::Device, "--device", "cuda was asked for: {}",
          runtime::no_gpu_reason());
  return device == "cpu" || !has_gpu ? DeviceType::cpu : DeviceType::cuda;
}

void declare_devices(const Options& options, const std::string& virtual_devices) {
  if (!virtual_devices.empty()) {
    require(options.device_type == DeviceType::cuda, ErrorCode::Usage, "--virtual-devices",
            "'{}' shares a GPU, and the device is the CPU; its devices are virtual already",
            virtual_devices);
    runtime::set_virtual_devices(virtual_devices);
  } else if (options.device_type == DeviceType::cuda && !runtime::has_virtual_devices()) {
    const std::size_t num_gpus = runtime::physical_gpus().size();
    const auto num_devices = static_cast<std::size_t>(options.num_devices);
    if (num_gpus >= num_devices) return;
    runtime::set_virtual_devices(spread_over_gpus(num_devices, num_gpus));
  }
}

void print_devices(const std::vector<Device>& devices, std::optional<int> own) {
  const Device first = devices[0];
  const std::size_t count = devices.size();
  std::string names =
      to_string(first) + (count > 1 ? fmt::format(" to {}", to_string(devices.back())) : "");
  if (own && count > 1) names = fmt::format("{}:{} of {}", to_string(first.type), *own, names);
  std::string hardware;
  if (first.type == DeviceType::cpu) {
    hardware = count > 1
                   ? fmt::format("virtual: each has its own memory, all share {}", count_cores())
                   : fmt::format("this process may use {}", count_cores());
  } else {
    hardware = runtime::physical_gpus().at(static_cast<std::size_t>(gpu_of(first))).name;
    const std::size_t num_gpus = num_gpus_of(devices);
    if (num_gpus < count) {
      hardware =
          fmt::format("{} logical devices on {}", count,
                      num_gpus == 1 ? "one GPU, " + hardware : fmt::format("{} GPUs", num_gpus));
    } else if (count > 1) {
      hardware = fmt::format("{} GPUs, the first {}", count, hardware);
    } else if (runtime::num_devices(first.type) > 1) {
      hardware += fmt::format("; index 0 of {}, a single device is always index 0",
                              runtime::num_devices(first.type));
    }
  }
  say(fmt::format("using device: {} ({})", names, hardware), 14);
}

std::vector<Device> Options::devices(int count) const {
  std::vector<Device> result;
  for (int i = 0; i < count; ++i) {
    result.push_back({device_type, i});
    const bool exists = result.back().index < runtime::num_devices(device_type);
    if (!exists) runtime::logical_device(result.back());  // throws, and says which do
  }
  return result;
}

}  // namespace lockstep::tutorial
