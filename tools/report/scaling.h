// Compares a row with its baseline: how much faster it is, and how much faster it could be.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/run_file.h"

namespace lockstep::tools {

struct Scaling {
  double speedup = 1;     // rows trained per second, against the baseline's
  double ideal = 1;       // usable cores (GPUs: physical devices), against the baseline's
  double efficiency = 1;  // speedup / ideal; 1 is the most that the hardware could give
};

// True if the row's devices share this machine's cores: CPU devices that do not act out another
// machine (training/slow_motion.h).
bool is_on_cores(const RunRow& row);

// num_cores: this machine's. REQUIRES: both rows are trained.
Scaling scaling(const RunRow& row, const RunRow& baseline, std::size_t num_cores);

// The row that rows[index] is compared with: the last single-device row at or before it, or rows[0]
// if there is none.
const RunRow& baseline_of(const std::vector<RunRow>& rows, std::size_t index);

// "baseline: single, 1 device with 2 threads".
std::string describe_baseline(const RunRow& baseline);

}  // namespace lockstep::tools
