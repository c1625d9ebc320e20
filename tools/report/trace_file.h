// The file of --trace.
#pragma once

#include <string>

#include "engine/trace/recorder.h"
#include "tools/training/placement.h"

namespace lockstep::tools {

// Writes a recording, with all ranks, as a Chrome trace; says on stderr if it was too long to be
// kept whole. Where ranks are processes, rank 0 has brought their spans together and writes them.
void write_trace(const TrainingFlags& flags, const DevicePlacement& placement,
                 const trace::Recording& recording);

// A line for stderr: what write_trace() has written, and what opens it.
std::string describe_trace(const TrainingFlags& flags);

}  // namespace lockstep::tools
