// A row beside its baseline: how much faster it is, how much faster it could be, and what keeps it
// from that.
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

// The row that a run is judged by: the fastest with several devices and a breakdown; of those whose
// devices share hardware only where there is no other. 0: there is none.
std::size_t row_to_explain(const std::vector<RunRow>& rows, std::size_t num_cores);

// The largest part of a step, computation or what stands beside it: "exposed communication".
struct StepPart {
  double seconds = 0;
  const char* name = nullptr;
};
StepPart largest_part(const trace::StepBreakdown& step);

// Whether the row's devices have fewer cores (GPUs: physical devices) than they would use.
bool is_oversubscribed(const RunRow& row, std::size_t num_cores);

// Names what keeps that row from its ideal: "exposed communication". Empty where row_to_explain()
// finds none.
std::string bound_limit(const std::vector<RunRow>& rows, std::size_t num_cores);

// About that row: which parts of its step are the largest, which of them keeps it from the ideal,
// and what would help. "ddp x2: 62 % of the step is computation, 31 % exposed communication:
// limited by exposed communication; ...". Empty likewise. A row that is faster than its hardware
// explains is said to be so.
// num_cores: those of this machine. name: the row's, where it is not that of its mode and devices.
std::string bound_sentence(const std::vector<RunRow>& rows, std::size_t num_cores,
                           const std::string& name = {});

// About rows with more and more rows per device (compare --per-device-batch 64,256): what of the
// fastest mode's step stays, what grows, and how far the efficiency comes by it. Empty with fewer
// than two sizes, without breakdowns, and where messages differ with the batch.
std::string growth_sentence(const std::vector<RunRow>& rows, std::size_t num_cores);

}  // namespace lockstep::tools
