// The file of --trace.
#pragma once

#include <string>

#include "engine/trace/recorder.h"
#include "tools/training/placement.h"

namespace lockstep::tools {

// Writes a recording in the format of --trace-format; says on stderr if it was too long to be kept
// whole. perfetto: one file with all ranks; kineto: one file per rank. Where ranks are processes,
// rank 0 has brought their spans together, so it writes them all.
void write_trace(const TrainingFlags& flags, const DevicePlacement& placement,
                 const trace::Recording& recording);

// What write_trace() has written, and what opens it: one or two lines, for stderr.
std::string describe_trace(const TrainingFlags& flags, const DevicePlacement& placement);

}  // namespace lockstep::tools
