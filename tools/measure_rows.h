// Measures and judges the rows of `compare`.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tools/compare_rows.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

// True if the row's ranks are processes, which write their own timeline.
bool has_processes(const TrainingFlags& flags, const DevicePlacement& placement);

// Trains each row, compares it with one device, and prints it in a table as soon as it is known. On
// return the last row that ran in this process is still recorded (engine/trace).
std::vector<RunRow> measure_rows(const std::vector<PlannedRow>& plan, const CompareFlags& flags,
                                 std::FILE* out);

// --explain-drift: trains all rows again in float64, and prints the drift of both precisions.
void explain_drift(const std::vector<PlannedRow>& plan, const TrainingFlags& flags,
                   const std::vector<RunRow>& rows, std::FILE* out);

}  // namespace lockstep::tools
