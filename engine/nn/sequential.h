// Modules one after another: the output of each is the input of the next.
#pragma once

#include "engine/autograd/ops/ops.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

// Children are named "0", "1", "2", ... A Linear and the activation after it run as one operation
// (and one node in the graph); if the next child is a Linear again, that one's backward product
// takes the activation's gradient too, since nobody else sees what passes between them. Names and
// results are the same as without.
class Sequential final : public ModuleOf<Sequential> {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules);

  Variable forward(const Variable& x) override;

  std::size_t size() const { return children().size(); }
  Module& operator[](std::size_t index) const { return *children()[index].second; }

  std::string type_name() const override { return "Sequential"; }

 private:
  // What forward() runs: a child, and for a Linear the activation of the child after it.
  struct Step {
    std::size_t child = 0;
    enum class Kind { module, fused_linear } kind = Kind::module;
    Activation activation = Activation::none;
    ResultUse use = ResultUse::anything;
  };

  std::vector<Step> steps_;
};

}  // namespace lockstep::nn
