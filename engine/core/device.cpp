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
  const std::size_t colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  Device device{type == "cuda" ? DeviceType::cuda : DeviceType::cpu, 0};
  bool is_known = type == to_string(device.type);
  if (colon != std::string_view::npos) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, device.index);
    is_known = is_known && read.ec == std::errc{} && read.ptr == end && device.index >= 0;
  }
  require(is_known, ErrorCode::Device, "device",
          "unknown device '{}'; use cpu, cuda, or one with an index such as cuda:1", text);
  return device;
}

std::vector<Device> devices_of(DeviceType type, const std::vector<int>& ids) {
  require(!ids.empty(), ErrorCode::Device, "devices", "the list of device ids is empty");
  std::vector<Device> devices;
  for (const int id : ids) {
    const Device device{type, id};
    require(id >= 0, ErrorCode::Device, "devices", "device id {} is negative", id);
    require(std::find(devices.begin(), devices.end(), device) == devices.end(), ErrorCode::Device,
            "devices", "device id {} appears twice in the list; name each device once", id);
    devices.push_back(device);
  }
  return devices;
}

}  // namespace lockstep
