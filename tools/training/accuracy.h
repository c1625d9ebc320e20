// How many of the test rows a model gets right.
#pragma once

#include "tools/training/model.h"
#include "tools/training/task.h"

namespace lockstep::tools {

// A fraction of the test rows, of which each rank judges its part. All ranks call it. In eval mode,
// without gradients. REQUIRES: the data set has test rows.
double measure_accuracy(const TrainingTask& task, const LocalModels& models);

}  // namespace lockstep::tools
