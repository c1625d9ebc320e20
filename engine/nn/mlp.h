// Multi-layer perceptrons from a line of text: "mlp:784-256-10", "mlp:64-1024-10:gelu".
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/nn/layers.h"

namespace lockstep::nn {

struct MlpSpec {
  std::vector<std::size_t> sizes;  // inputs, hidden layers, outputs: at least two, all positive
  Activation activation = Activation::relu;  // between the layers
};

// Parses mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh]. GELU is the erf form.
// Throws Error{Usage} that says what is allowed.
MlpSpec parse_mlp(std::string_view text);

// Linear, activation, Linear, ...: the layers are named "0", "2", "4", ... as in PyTorch. Initial
// weights are drawn layer by layer from Rng(seed), and are the same on every device.
std::shared_ptr<Sequential> make_mlp(const MlpSpec& spec, std::uint64_t seed,
                                     DType dtype = DType::float32,
                                     Device device = default_device());
std::shared_ptr<Sequential> make_mlp(std::string_view text, std::uint64_t seed,
                                     DType dtype = DType::float32,
                                     Device device = default_device());

}  // namespace lockstep::nn
