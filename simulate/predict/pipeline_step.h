// A step whose devices hold parts of the model one behind the other: micro-batches pass through all
// of them, forward and back (GPipe). predict_step() calls it.
#pragma once

#include <cstddef>
#include <vector>

#include "simulate/predict/step.h"

namespace lockstep::predict {

// Layers [first[i], first[i + 1]) go to device i, such that the slowest part is as fast as layers
// allow; the last entry is the number of layers. REQUIRES: as many layers as parts, or more.
std::vector<std::size_t> balanced_parts(const std::vector<LayerWork>& layers,
                                        std::size_t num_parts);

// Throws Error{Usage} for more devices than layers.
void require_layer_for_each(std::size_t num_devices, std::size_t num_layers);

// workload: of a micro-batch. Parts wait for each other's activations and gradients, which cross
// the links between them; the breakdown is the mean over the devices, and its `wait` is what they
// wait for each other. A part is updated when the last micro-batch has come back to it.
// Throws Error{Usage} for more devices than layers.
PredictedStep predict_pipeline(Network& network, const Workload& workload,
                               const StepOptions& options);

}  // namespace lockstep::predict
