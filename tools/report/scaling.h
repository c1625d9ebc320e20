// A row beside its baseline: how much faster it is, and how much faster it could be.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/run_file.h"

namespace lockstep::tools {

struct Scaling {
  double speedup = 1;     // rows trained per second, against the baseline's
  double ideal = 1;       // usable cores (GPUs: physical devices), against the baseline's
  double efficiency = 1;  // speedup / ideal: 1 is all that the hardware could give
};

// Whether its devices share this machine's cores: those of the CPU, unless they act out a machine
// of their own (training/slow_motion.h).
bool is_on_cores(const RunRow& row);

// num_cores: those of this machine. REQUIRES: both rows trained.
Scaling scaling(const RunRow& row, const RunRow& baseline, std::size_t num_cores);

// The row that rows[index] is compared with: the last single-device row up to it; rows[0] where
// there is none.
const RunRow& baseline_of(const std::vector<RunRow>& rows, std::size_t index);

// "baseline: single, 1 device with 2 threads".
std::string describe_baseline(const RunRow& baseline);

}  // namespace lockstep::tools
