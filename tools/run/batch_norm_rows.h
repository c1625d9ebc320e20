// The rows that batch norm takes its statistics of.
#pragma once

#include <span>

#include "tools/run/placement.h"

namespace lockstep::tools {

// Throws Error{Usage} that names a batch for all placements, if batch norm would get a single value
// per channel in a step that the task makes.
void require_rows_for_batch_norm(const TrainingTask& task, const TrainingFlags& flags,
                                 std::span<const DevicePlacement> placements);

}  // namespace lockstep::tools
