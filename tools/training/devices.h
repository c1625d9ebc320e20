// Which devices the flags name, and what a person is told about them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/core/device.h"
#include "tools/cli/training_flags.h"
#include "tools/training/task.h"

namespace lockstep::tools {

// The device type that --device names (auto: CUDA if there is a GPU), after declaring what
// --virtual-devices says. Also sets the precision that --matmul-precision names.
// Throws Error{Device} for cuda where there is none, with the reason.
DeviceType resolve_device_type(const TrainingFlags& flags);

// {cuda:0, ..., cuda:count-1}, or exactly --device-ids.
// Throws Error{Usage} for devices that do not exist, and proposes --virtual-devices.
std::vector<Device> resolve_devices(const TrainingFlags& flags, DeviceType type);

// Throws what ranks that are processes of this machine, one per device, would throw once they have
// been started, so that it is said once. No thread of a GPU's driver takes signals afterwards: the
// launcher that this process becomes waits for them.
// Throws as resolve_device_type, resolve_devices and require_reachable_devices do.
void require_startable(const RankFlags& ranks, const TrainingFlags& devices);

// Sets the threads of every CPU device: --threads-per-device, else cores / devices, at least 1;
// always 1 under --bitwise. num_devices: those that share this process's cores.
void apply_threads_per_device(const TrainingFlags& flags, std::size_t num_devices);

// "using device: cuda:0, cuda:1 (virtual, on one NVIDIA H200)"; of many, "cpu:0 to cpu:7".
std::string describe_devices(const std::vector<Device>& devices);

// How many physical devices these are: GPUs, or 1 for the CPU.
std::size_t num_physical_devices(const std::vector<Device>& devices);
std::size_t num_physical_devices(const DevicePlacement& placement);

}  // namespace lockstep::tools
