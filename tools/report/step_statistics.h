// What many steps have in common, where one step's breakdown shows only itself.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine/trace/breakdown.h"

namespace lockstep::tools {

// Each figure for itself, over all steps given: a part's median need not come from the step whose
// wall time is the median, so the parts of `median` do not add up to its step.
struct StepStatistics {
  std::size_t num_steps = 0;
  trace::StepBreakdown median;  // of an even number, the smaller of the middle two
  trace::StepBreakdown p90;     // the smallest that at least 90 % of the steps do not exceed
};

StepStatistics step_statistics(const std::vector<trace::StepBreakdown>& steps);

// A step as long as this one, whose parts relate to each other as their medians over all steps do:
// of one step alone a part may have any length.
trace::StepBreakdown typical_step(const trace::StepBreakdown& step,
                                  const trace::StepBreakdown& medians);

// overlapped_comm / comm over all steps together; empty where nothing was communicated. What
// Holistic Trace Analysis calls the communication-computation overlap of a rank.
std::optional<double> comm_overlap(const std::vector<trace::StepBreakdown>& steps);

}  // namespace lockstep::tools
