// Stage 4 of DataParallel: put the replicas' outputs together on one device.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/plan/scatter.h"

namespace lockstep::parallel {

// Concatenates along dim onto a device. Scalars become a vector of length n, in order.
// Gradient: scatter of y's gradient, each part to its input's device.
// Throws:   Error{Usage} for no inputs; Error{Shape} showing both shapes when sizes differ outside
//           dim; Error{DType} when dtypes differ.
Variable gather(const std::vector<Variable>& parts, Device output_device, std::size_t dim = 0);

// Writes `part` into its place in `whole` along dim; they may be on different devices.
void put_part(const Tensor& part, const Tensor& whole, std::size_t dim,
              const plan::ScatterPart& place);

// The part of a tensor along dim as a matrix [outer sizes, part.size * inner sizes].
MatrixView part_view(const Tensor& whole, std::size_t dim, const plan::ScatterPart& place);

}  // namespace lockstep::parallel
