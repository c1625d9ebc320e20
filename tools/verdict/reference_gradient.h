// The gradient of a batch by the shortest way there is: one device, a plain model, no wrapper, no
// loader. What the engine computed on many devices is compared with it.
#pragma once

#include "tools/training/task.h"
#include "tools/verdict/gradient_error.h"
#include "tools/verdict/kept_tensors.h"

namespace lockstep::tools {

// The rows of a step's global batch, as numbers of the data set: those of a world of one rank.
// REQUIRES: the epoch has so many steps.
std::vector<std::size_t> global_rows(const TrainingTask& task, std::size_t epoch,
                                     std::size_t step_of_epoch);

// Of the mean loss over these rows, at these weights, in the task's dtype on `device`; clipped, if
// the task says so. The rows are cut into pieces at random (gradient_error.h says why). On a GPU,
// where the bits of a row depend on the number of rows, the gradient itself is that of pieces of
// rows_of_device rows: as many as one of the parallel run's devices gets.
enum class Clipping { off, on };
ReferenceGradient reference_gradient(const TrainingTask& task, Device device,
                                     const KeptTensors& weights,
                                     const std::vector<std::size_t>& rows,
                                     std::size_t rows_of_device, Clipping clipping);

}  // namespace lockstep::tools
