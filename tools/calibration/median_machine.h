// One calibration out of several.
#pragma once

#include <vector>

#include "engine/predict/measured_machine.h"

namespace lockstep::tools {

// Of each figure the median: what disturbs a moment disturbs one pass. REQUIRES: passes of the same
// sizes, and one at least.
predict::MeasuredMachine median_machine(std::vector<predict::MeasuredMachine> passes);

}  // namespace lockstep::tools
