// Dropout, whose masks do not depend on how a batch is sharded.
#pragma once

#include <cstdint>
#include <string>

#include "engine/nn/module.h"

namespace lockstep::nn {

// In training zeroes each element with probability p and scales the others by 1/(1-p).
// The mask depends only on (seed, training step, layer, global row), so any sharding of a batch
// over replicas or ranks draws the same one, and every step draws another. Optimizer, DataLoader
// and the parallel wrappers keep count of step and row (core/thread_context.h); `layer` is a number
// that no other Dropout of the model has, and one that is called twice in a step draws the same
// mask twice. Evaluation passes the input on. Throws Error{Usage} unless p is in [0, 1].
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
