// One calibration out of several.
#pragma once

#include <vector>

#include "engine/predict/measured_machine.h"

namespace lockstep::tools {

// Of each time that one device takes the shortest, since whatever else runs on a machine only makes
// work take longer, and each is a median of its own pass. Of what several devices take together,
// and of each ratio of times, the median: devices are faster, too, where they miss each other.
// REQUIRES: passes of the same sizes, and one at least.
predict::MeasuredMachine best_of_passes(std::vector<predict::MeasuredMachine> passes);

}  // namespace lockstep::tools
