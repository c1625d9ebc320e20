// Measures and judges the rows of `compare`.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tools/compare_rows.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

// Whether the ranks of the row are processes, which leave their own timeline.
bool has_processes(const TrainingFlags& flags, const DevicePlacement& placement);

// Trains once in every way, and compares with one device; prints a table, each line as soon as it
// is known. The last row of this process is still recorded (engine/trace).
std::vector<RunRow> measure_rows(const std::vector<PlannedRow>& plan, const CompareFlags& flags,
                                 std::FILE* out);

// --explain-drift: all rows once more in float64, beside the drift that was found.
void explain_drift(const std::vector<PlannedRow>& plan, const TrainingFlags& flags,
                   const std::vector<RunRow>& rows, std::FILE* out);

}  // namespace lockstep::tools
