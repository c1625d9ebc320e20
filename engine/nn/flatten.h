// [batch, a, b, ...] -> [batch, a * b * ...]: shares memory, copies nothing.
#pragma once

#include "engine/nn/module.h"

namespace lockstep::nn {

// Joins dimensions start_dim to end_dim (both included; negative ones count from the end).
// Throws Error{Shape} in forward when the input lacks them.
class Flatten final : public ModuleOf<Flatten> {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}

  Variable forward(const Variable& x) override;

  std::string type_name() const override { return "Flatten"; }
  std::string extra_text() const override;

 private:
  int start_dim_;
  int end_dim_;
};

}  // namespace lockstep::nn
