// Groups the parameters that are sharded together: a pure plan, known to all ranks alike.
//
// A unit is a layer of a Sequential (a Residual or a GPT block is one layer). What no such layer
// owns alone belongs to the root unit, which is whole from the beginning of a forward pass to its
// end: embeddings that the model uses itself, and a parameter that is tied to two layers.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/nn/module.h"

namespace lockstep::parallel {

// One flat buffer: its parameters behind each other, each on a cache line of its own, and padding,
// so that every rank's part is as large as the others'.
struct UnitLayout {
  nn::Module* module = nullptr;  // around whose forward pass the parameters must be whole
  std::vector<nn::NamedParameter> parameters;
  std::vector<std::size_t> offsets;  // each one's first element in the buffer
  std::size_t num_elements = 0;      // padding included: a multiple of world_size
};

// The root's unit first, if it has parameters, then the layers in their order. Parameters without
// a gradient are in none of them. Throws Error{Usage} unless one device and one dtype hold all.
std::vector<UnitLayout> unit_layouts(nn::Module& module, std::size_t world_size);

}  // namespace lockstep::parallel
