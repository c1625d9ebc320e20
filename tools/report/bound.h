// What bounds a run: one sentence from the breakdowns of its rows.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_file.h"

namespace lockstep::tools {

// The row that a run is judged by: the fastest with several devices and a breakdown; of those whose
// devices share hardware only where there is no other. 0: there is none.
std::size_t row_to_explain(const std::vector<RunRow>& rows, std::size_t num_cores);

// Whether the row's devices have fewer cores (GPUs: physical devices) than they would use.
bool is_oversubscribed(const RunRow& row, std::size_t num_cores);

// About the fastest row with several devices: which parts of its step are the largest, which of
// them keeps it from the ideal, and what would help. "ddp x2: 62 % of the step is computation, 31 %
// exposed communication: bound by communication; ...". Empty where no such row has a breakdown.
// A row that is faster than its hardware explains is said to be so.
// num_cores: those of this machine. name: the row's, where it is not that of its mode and devices.
std::string bound_sentence(const std::vector<RunRow>& rows, std::size_t num_cores,
                           const std::string& name = {});

// About rows with more and more rows per device (compare --per-device-batch 64,256): what of the
// fastest mode's step stays, what grows, and how far the efficiency comes by it. Empty with fewer
// than two sizes, without breakdowns, and where messages differ with the batch.
std::string growth_sentence(const std::vector<RunRow>& rows, std::size_t num_cores);

}  // namespace lockstep::tools
