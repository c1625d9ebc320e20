// Values of tensors at some moment of a run, kept outside any device's memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/nn/state_dict.h"

namespace lockstep::tools {

// By name, in the order of the state dict. A double holds every float32 and float64 exactly.
using KeptTensors = std::vector<std::pair<std::string, std::vector<double>>>;

KeptTensors keep(const nn::StateDict& tensors);

// REQUIRES: a tensor of this name.
const std::vector<double>& values_of(const KeptTensors& tensors, const std::string& name);

// Turns them into float64 vectors on the CPU, for a file.
nn::StateDict to_state_dict(const KeptTensors& tensors);

// The tensor where two runs differ most, and by how much; a NaN is the largest difference.
struct LargestDifference {
  std::string name;
  double value = 0;
};
// REQUIRES: same names and sizes.
LargestDifference largest_difference(const KeptTensors& a, const KeptTensors& b);

}  // namespace lockstep::tools
