// The list of GPUs for people, and the same as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/devices/gpu_list.h"

namespace lockstep::tools {

// Three parts: a line per GPU in the spirit of nvidia-smi, its processes, and with two GPUs or more
// how they reach each other; then the notes. A value that nobody told is "-". Empty without a GPU.
std::string gpu_table(const GpuList& list);

// {"driver", "nvml", "newest_cuda", "nvml_problem", "cuda_problem", "cuda_visible_devices", "gpus":
// [...], "links": [...], "notes": [...]}; what nobody told is null.
nlohmann::ordered_json gpu_json(const GpuList& list);

}  // namespace lockstep::tools
