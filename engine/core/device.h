// A logical device: the name that user code gives to the place of tensors and operations.
//
// Several logical devices may share one physical GPU, or the CPU: "cpu:0" ... "cpu:63" exist on
// demand. engine/runtime decides what a name stands for.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class DeviceType : std::uint8_t { cpu, cuda };

std::string_view to_string(DeviceType type);

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  auto operator<=>(const Device&) const = default;
};

// "cuda:1".
std::string to_string(Device device);

// Parses "cpu", "cuda" (both mean index 0) or "cuda:1". Throws Error{Device} and says what is
// allowed.
Device parse_device(std::string_view text);

// devices_of(DeviceType::cpu, {0, 3}) is {cpu:0, cpu:3}.
// Throws Error{Device} if ids is empty, or an id is negative or appears twice.
std::vector<Device> devices_of(DeviceType type, const std::vector<int>& ids);

}  // namespace lockstep

template <>
struct std::hash<lockstep::Device> {
  std::size_t operator()(lockstep::Device device) const noexcept {
    return static_cast<std::size_t>(device.type) * 4096u + static_cast<std::size_t>(device.index);
  }
};
