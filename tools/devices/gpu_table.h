// Shows the list of GPUs to people, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/devices/gpu_list.h"

namespace lockstep::tools {

// Three parts: a line per GPU in the style of nvidia-smi, its processes, and with two GPUs or more
// how they reach each other; then the notes. An unknown value is "-". Empty without a GPU.
std::string gpu_table(const GpuList& list);

// {"driver", "nvml", "newest_cuda", "nvml_problem", "cuda_problem", "cuda_visible_devices", "gpus":
// [...], "links": [...], "notes": [...]}; unknown values are null.
nlohmann::ordered_json gpu_json(const GpuList& list);

}  // namespace lockstep::tools
