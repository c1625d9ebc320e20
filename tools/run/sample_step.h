// A training step of a model on rows of noise or arbitrary tokens, with SGD and momentum: for
// measuring what a step takes, without data.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/models.h"
#include "engine/nn/module.h"
#include "engine/optim/optimizer.h"

namespace lockstep::tools {

class SampleStep {
 public:
  SampleStep(const std::string& model, const nn::ModelData& data, std::size_t batch, Device device);

  const nn::Module& model() const { return *model_; }
  Variable forward() const;  // the loss
  void run();
  std::size_t input_bytes() const;
  void synchronize() const;
  // The most that the device's pool held during one more step. REQUIRES: the step has run before,
  // which makes the optimizer's state.
  std::size_t measure_peak_bytes();

 private:
  Device device_;
  std::shared_ptr<nn::Module> model_;
  optim::Sgd optimizer_;
  Variable x_;
  Tensor targets_;
  Logits logits_;  // a text's would take as much memory as all else
};

}  // namespace lockstep::tools
