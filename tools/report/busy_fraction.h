// How busy a device was: the "GPU-Util" of a run.
#pragma once

#include "engine/trace/recorder.h"

namespace lockstep::tools {

// The share of all training steps' wall time during which the device of `track` (a rank or device)
// computed; 0 when no step was recorded.
//   CPU   what the CPU clock of the device's threads counted inside spans on the compute lane,
//         without waits and collectives: a thread that is ready and has no core computes nothing,
//         so eight devices on two cores are a quarter busy at most. Of the threads of a device's
//         pool it is the calling one, which takes its part of every operation, that speaks for all
//   GPU   the time for which its own spans on the compute lane were neither waiting nor
//         communication
double busy_fraction(const trace::Recording& recording, int track);

}  // namespace lockstep::tools
