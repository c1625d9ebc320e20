// Dropout: in training zeroes each element with probability p and scales the others by 1/(1-p).
#pragma once

#include <cstdint>

#include "engine/nn/module.h"

namespace lockstep::nn {

// The mask depends on (seed, training step, layer, global row) alone, so any sharding of a batch
// over replicas or ranks draws the same one. Step and row come from the ThreadContext; `layer` is a
// number that no other Dropout of the model has. In evaluation the input is passed on.
// Throws Error{Usage} unless p is in [0, 1].
class Dropout final : public ModuleOf<Dropout> {
 public:
  Dropout(double probability, std::uint64_t seed, std::uint32_t layer);

  Variable forward(const Variable& x) override;

  std::string type_name() const override { return "Dropout"; }
  std::string extra_text() const override;

 private:
  double probability_;
  std::uint64_t seed_;
  std::uint32_t layer_;
};

}  // namespace lockstep::nn
