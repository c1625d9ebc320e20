// Compares a row with its baseline: how much faster it is, how much faster it could be, and what
// limits it.
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

// The index of the row that a run is judged by: the fastest row with several devices and a
// breakdown. Rows whose devices share hardware count only if there are no others. 0 if there is no
// such row.
std::size_t row_to_explain(const std::vector<RunRow>& rows, std::size_t num_cores);

// The largest part of a step, computation or another one: "exposed communication".
struct StepPart {
  double seconds = 0;
  const char* name = nullptr;
};
StepPart largest_part(const trace::StepBreakdown& step);

// Names what keeps row_to_explain() from its ideal: "exposed communication". Empty if there is no
// such row.
std::string bound_limit(const std::vector<RunRow>& rows, std::size_t num_cores);

// Says about that row which parts of its step are the largest, which of them keeps it from the
// ideal, and what would help: "ddp x2: 62 % of the step is computation, 31 % exposed communication:
// limited by exposed communication; ...". Empty if there is no such row. If a row is faster than
// its hardware explains, the sentence says so.
// num_cores: this machine's. name: the row's name, if it differs from its mode and devices.
std::string bound_sentence(const std::vector<RunRow>& rows, std::size_t num_cores,
                           const std::string& name = {});

}  // namespace lockstep::tools
