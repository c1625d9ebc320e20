// How busy a device was: the "GPU-Util" of a run.
#pragma once

#include "engine/trace/recorder.h"

namespace lockstep::tools {

// The share of all training steps' time during which the compute lane of `track` (a rank or device)
// was inside a span that is neither waiting nor communication. 0 when no step was recorded.
double busy_fraction(const trace::Recording& recording, int track);

}  // namespace lockstep::tools
