// Sequential: a list of modules, one after another.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/module.h"

namespace lockstep::nn {

using NamedModule = std::pair<std::string, std::shared_ptr<Module>>;

// The output of each module is the input of the next. An ActivatedLayer and the activation after it
// run as one operation (and one node in the graph), with the same results.
Variable run_in_turn(std::span<const NamedModule> modules, const Variable& x);

// Modules one after another. Children are named "0", "1", "2", ..., or have names of their own, as
// in PyTorch's OrderedDict.
class Sequential final : public ModuleOf<Sequential> {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules);
  static std::shared_ptr<Sequential> with_names(std::vector<NamedModule> modules);

  Variable forward(const Variable& x) override { return run_in_turn(children(), x); }

  std::size_t size() const { return children().size(); }
  // Throws Error{Usage} unless index < size().
  Module& operator[](std::size_t index) const;

  std::string type_name() const override { return "Sequential"; }
};

}  // namespace lockstep::nn
