// Modules one after another: the output of each is the input of the next.
#pragma once

#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

// Children are named "0", "1", "2", ... A Linear and the activation after it run as one operation
// (and one node in the graph), and Linears that follow each other as one linear_chain: nobody else
// sees what passes between them. Names and results are the same as without.
class Sequential final : public ModuleOf<Sequential> {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules);

  Variable forward(const Variable& x) override;

  std::size_t size() const { return children().size(); }
  // Throws Error{Usage} unless index < size().
  Module& operator[](std::size_t index) const;

  std::string type_name() const override { return "Sequential"; }

 protected:
  Variable forward_cross_entropy(const Variable& x, const Tensor& labels, Reduction reduction,
                                 Tensor grad) override;

 private:
  // What forward() runs: a chain of Linears, each with the activation of the child after it; or,
  // where that is empty, one child of another kind.
  struct Step {
    struct Layer {
      std::size_t linear = 0;
      Activation activation = Activation::none;
    };
    std::vector<Layer> chain;
    std::size_t child = 0;
  };

  std::vector<LinearLayer> layers_of(const Step& step) const;
  Variable run(std::span<const Step> steps, Variable x);

  std::vector<Step> steps_;
};

}  // namespace lockstep::nn
