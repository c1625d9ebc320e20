// One calibration out of several.
#pragma once

#include <vector>

#include "simulate/predict/measured_machine.h"

namespace lockstep::tools {

// Of each figure the median: a run that is compared with it reports the median of its steps, too.
// Of a layer's times that is how they relate to each other, and how long all of them are.
// REQUIRES: passes of the same sizes, and one at least.
predict::MeasuredMachine median_of_passes(std::vector<predict::MeasuredMachine> passes);

}  // namespace lockstep::tools
