// Which devices a program that starts now had best take.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/devices/gpu_list.h"

namespace lockstep::tools {

enum class PickBy { memory, utilization };

// Ids of the `count` logical devices with the most free memory, or on the idlest GPUs: the best
// first, smaller ids before larger ones where both are as good. Throws Error{Usage} when there are
// fewer, Error{Device} when a GPU does not tell the value or NVML is not there.
std::vector<std::size_t> pick_devices(const GpuList& list, std::size_t count, PickBy by);

}  // namespace lockstep::tools
