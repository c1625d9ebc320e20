// Rows of `compare` that other processes run.
#pragma once

#include "tools/commands/compare_rows.h"

namespace lockstep::tools {

// True if the row's ranks are processes, which write their own timeline.
bool has_processes(const TrainingFlags& flags, const DevicePlacement& placement);

// Runs a row in another process, by `train --row FILE`, which leaves it there.
// Throws an Error that ends with the process's last words: Error{Usage} if it exited with 2, else
// Error{Comm}.
RunRow run_process_row(const TrainingFlags& flags_of_all, const PlannedRow& planned);

// The same row, stopped after a third of its steps; another process goes on from the checkpoint.
RunRow run_resumed_row(const TrainingFlags& flags, const PlannedRow& planned);

}  // namespace lockstep::tools
