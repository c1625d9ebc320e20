// Stage 3 of DataParallel: run every replica on its shard, all at the same time.
#pragma once

#include <memory>
#include <vector>

#include "engine/nn/module.h"

namespace lockstep::parallel {

// outputs[i] = replicas[i](inputs[i]), each on the line of work of its input's device: one thread
// per replica, all joined. Grad mode, step and rank carry over; the number of the shard's first row
// goes with it, so that dropout masks do not depend on the sharding.
// Throws: Error{Usage} when the numbers of replicas and inputs differ; else the error of the lowest
//         replica with its number and device: "[parallel_apply] replica 1 on device cpu:1: ...".
std::vector<Variable> parallel_apply(const std::vector<std::shared_ptr<nn::Module>>& replicas,
                                     const std::vector<Variable>& inputs);

}  // namespace lockstep::parallel
