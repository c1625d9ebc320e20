// Forward and backward of one step: leaves gradients in the parameters' grad().
#pragma once

#include <vector>

#include "engine/data/data_loader.h"
#include "tools/training/model.h"

namespace lockstep::tools {

// batches: by local rank. Returns for each the sum of the loss over its rows (over all ranks' rows
// in bitwise mode): one element, on the device where the model's output is, or on the CPU.
// Gradients are those of the mean loss over the global batch under --sampler exact; under torch
// they are the average over ranks of the mean over each rank's rows.
std::vector<Tensor> compute_gradients(const TrainingTask& task, const LocalModels& models,
                                      const std::vector<data::Batch>& batches);

}  // namespace lockstep::tools
