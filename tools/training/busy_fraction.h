// How busy a device was: the "GPU-Util" of a run.
#pragma once

#include <vector>

#include "engine/trace/recorder.h"
#include "tools/training/task.h"

namespace lockstep::tools {

// The share of all training steps' time during which the compute lane of `track` (a rank or device)
// was inside a span that is neither waiting nor communication. 0 when no step was recorded.
double busy_fraction(const trace::Recording& recording, int track);

// Adds the breakdown of the first track's median step, what the steps of all tracks have in common,
// and how busy each track was and how well it hid its communication. Nothing when nothing was
// recorded.
void take_times(const trace::Recording& recording, const std::vector<int>& tracks,
                TrainingResult& result);

}  // namespace lockstep::tools
