// Statistics over many steps; one step's breakdown only shows itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "engine/trace/breakdown.h"
#include "engine/trace/recorder.h"

namespace lockstep::tools {

// Each figure is computed over all steps by itself: a part's median need not come from the step
// whose wall time is the median, so the parts of the median do not add up to its step. The members'
// names are those of the run file.
struct StepStatistics {
  std::size_t num_steps = 0;
  trace::StepBreakdown median_seconds;  // of two middle ones, the smaller
  trace::StepBreakdown p90_seconds;     // the smallest that 90 % of the steps do not exceed
};

StepStatistics step_statistics(const std::vector<trace::StepBreakdown>& steps);

// overlapped_comm / comm over all steps together; empty if nothing was communicated. Holistic Trace
// Analysis calls it the communication-computation overlap of a rank.
std::optional<double> comm_overlap(const std::vector<trace::StepBreakdown>& steps);

// The share of all training steps' wall time during which the device of `track` (a rank or device)
// computed; 0 if no step was recorded.
//   CPU   the time that the CPU clock of the device's threads counted inside spans on the
//         compute lane, without waits and collectives. A thread that is ready but has no core
//         computes nothing, so eight devices on two cores are at most a quarter busy. In a
//         device's pool the calling thread stands for all: it takes part in every operation
//   GPU   the time for which its own spans on the compute lane were neither waiting nor
//         communication
double busy_fraction(const trace::Recording& recording, int track);

// For an even number of values, the mean of the middle two. REQUIRES: values.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace lockstep::tools
