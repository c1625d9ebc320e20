// Compares the gradient of a loss with differences of the loss, which need no backward pass: so a
// mistake in the gradients that one device and all ranks have in common is found, too.
//
// All of it is computed in float64. Each parameter w is moved along a random direction v, of
// elements in [-1, 1), by e = 1e-7 to either side, and the slope between the two losses is compared
// with the gradient g's part along v:
//
//   |(loss(w + ev) - loss(w - ev)) / 2e - g v| <= 3e-3 |g| + a few roundings of the loss
//
// The weights are first moved by random numbers of up to 0.01: else every ReLU with neither bias
// nor input would be on its kink. If a kink still happens to be within e, it is somewhere else from
// the next such point: a wrong gradient is wrong in each of three.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/nn/module.h"
#include "tools/run/findings.h"
#include "tools/run/task.h"

namespace lockstep::tools {

struct WrongGradient {
  std::string parameter;
  double by_gradient = 0;  // the slope along the direction
  double by_difference = 0;
};

// Moves the parameters of a float64 model away from these weights. loss() computes its mean loss
// over some rows, always the same. If there are more parameters than groups, those of a group are
// moved together, and one by one if the group is wrong.
std::optional<WrongGradient> find_wrong_gradient(nn::Module& model, const KeptTensors& weights,
                                                 const std::function<Variable()>& loss,
                                                 std::size_t num_groups, std::uint64_t seed);

// The same for a copy of the task's model on this device, with these weights, and some of these
// rows: as many rows and groups as take about a step's time. Models of more than 2^25 weights are
// left out.
std::optional<WrongGradient> find_wrong_gradient(const TrainingTask& task, const nn::Module& model,
                                                 Device device, const KeptTensors& weights,
                                                 const std::vector<std::size_t>& rows);

}  // namespace lockstep::tools
