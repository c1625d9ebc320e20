// Stage 1 of DataParallel: cut a batch into one shard per device.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/plan/scatter.h"

namespace lockstep::parallel {

// Shards of x along dim, cut by plan::scatter_plan (torch.chunk): as many as the plan has parts,
// shard i on devices[i].
// Memory:   a shard along dim 0 that stays on x's device is a view of x; all others are copies.
// Gradient: gather of the shards' gradients onto x's device.
// Throws:   Error{Shape} when x has no such dim, Error{Usage} for no devices.
std::vector<Variable> scatter(const Variable& x, const std::vector<Device>& devices,
                              std::size_t dim = 0);

// The same with the sizes given: one positive size per device, and they sum to the dimension.
std::vector<Variable> scatter_with_sizes(const Variable& x, const std::vector<Device>& devices,
                                         const std::vector<std::size_t>& chunk_sizes,
                                         std::size_t dim = 0);

// The same for tensors without gradients, such as labels.
std::vector<Tensor> scatter(const Tensor& x, const std::vector<Device>& devices,
                            std::size_t dim = 0);

// Copies part of `from` along dim to a device. Used by scatter and by gather's gradient.
Tensor take_part(const Tensor& from, std::size_t dim, const plan::ScatterPart& part, Device device);

}  // namespace lockstep::parallel
