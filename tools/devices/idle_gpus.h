// GPUs that nobody uses, taken under their locks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/devices/gpu_lock.h"
#include "tools/nvml/nvml.h"

namespace lockstep::tools {

// A GPU is idle when no process has a compute context on it and both figures are within these
// limits. What a GPU does not tell is not held against it.
struct IdleLimits {
  double max_used_mib = 512;  // a desktop's windows need some
  double max_utilization_percent = 5;
};

// "used by pid 812 (alice: python train.py)"; empty for an idle GPU.
std::string why_busy(const nvml::GpuStatus& gpu, const IdleLimits& limits);

struct HeldGpu {
  std::string uuid;
  FileLock lock;
};

struct Acquisition {
  std::vector<HeldGpu> gpus;      // as many as asked for, or none
  std::vector<std::string> busy;  // "GPU 0 is used by ...", for each GPU that was not to be had
};

// Takes the first `count` GPUs of those named by index that are idle and that nobody has locked;
// all or none of them. Never waits. Attempts of several programs exclude each other, so that two of
// them cannot each hold a part of what the other lacks.
Acquisition try_acquire(const nvml::Library& library, const std::vector<std::size_t>& indices,
                        std::size_t count, const IdleLimits& limits,
                        const std::filesystem::path& folder);

}  // namespace lockstep::tools
