// The file of --trace.
#pragma once

#include "tools/training/task.h"

namespace lockstep::tools {

// Writes what was recorded in the format of --trace-format; says on stderr if the recording was too
// long to be kept whole.
void write_trace(const TrainingFlags& flags, const DevicePlacement& placement);

}  // namespace lockstep::tools
