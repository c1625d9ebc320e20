// The memory that a task's steps take, and the batch that a device without memory has room for.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/run/placement.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// The most bytes that tensors hold on each device in a few steps on zeros, run there by the code
// that trains. Ranks are threads here. The task's data may be without rows.
std::vector<std::size_t> step_bytes(const TrainingTask& task, const DevicePlacement& placement);

// Behind the words of a device that has run out of memory: "; a step on 65536 rows needs about 3.1
// GiB on cuda:0, which has 0.9 GiB: about 18000 rows would fit". Measures steps of fewer rows on
// the same devices, and extends them in a straight line. num_processes: they share the rows evenly,
// and the placement is this one's. Empty if that fails, or if the step would fit. REQUIRES: no
// tensors of the run are left.
std::string say_which_batch_fits(const TrainingTask& task, const TrainingFlags& flags,
                                 const DevicePlacement& placement, std::size_t num_processes = 1);

}  // namespace lockstep::tools
