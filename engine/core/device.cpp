#include "engine/core/device.h"

#include <algorithm>
#include <charconv>

#include "engine/core/error.h"

namespace lockstep {

std::string_view to_string(DeviceType type) {
  return type == DeviceType::cpu ? "cpu" : "cuda";
}

std::string to_string(Device device) {
  return fmt::format("{}:{}", to_string(device.type), device.index);
}

Device parse_device(std::string_view text) {
  const auto reject = [&]() -> Device {
    fail(ErrorCode::Device, "device",
         "unknown device '{}'; use cpu, cuda, or one with an index such as cuda:1", text);
  };
  const std::size_t colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  Device device;
  if (type == "cpu") {
    device.type = DeviceType::cpu;
  } else if (type == "cuda") {
    device.type = DeviceType::cuda;
  } else {
    return reject();
  }
  if (colon == std::string_view::npos) return device;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
  if (digits.empty() || code != std::errc{} || end != digits.data() + digits.size() ||
      device.index < 0) {
    return reject();
  }
  return device;
}

std::vector<Device> devices_of(DeviceType type, const std::vector<int>& ids) {
  require(!ids.empty(), ErrorCode::Device, "devices", "the list of device ids is empty");
  std::vector<Device> devices;
  for (const int id : ids) {
    const Device device{type, id};
    require(id >= 0, ErrorCode::Device, "devices", "device id {} is negative", id);
    require(std::find(devices.begin(), devices.end(), device) == devices.end(), ErrorCode::Device,
            "devices", "device id {} stands twice in the list; name each device once", id);
    devices.push_back(device);
  }
  return devices;
}

}  // namespace lockstep
