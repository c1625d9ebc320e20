// The devices that a tutorial uses, by its flags, and the line that names them. A tutorial itself
// only needs common.h.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tutorials/common.h"

namespace lockstep::tutorial {

// device: auto, cpu or cuda. Throws Error{Device} for cuda without a GPU.
DeviceType resolve_device_type(const std::string& device);

// Makes logical devices of the GPUs: those of virtual_devices; else, if there are fewer than
// options.num_devices, as many as needed. Throws Error{Usage} for virtual_devices on the CPU.
void declare_devices(const Options& options, const std::string& virtual_devices);

// "using device: cpu:0 to cpu:3 (...)"; of a rank its own first.
void print_devices(const std::vector<Device>& devices, std::optional<int> own);

}  // namespace lockstep::tutorial
