// The result on the test rows, which a run reports after its epochs.
#pragma once

#include "tools/run/model.h"

namespace lockstep::tools {

// The mean over all test labels, in eval mode: the fraction that is right or, for a text, the loss.
// All ranks call it.
double mean_over_test(const TrainingTask& task, const Strategies& strategies);

}  // namespace lockstep::tools
