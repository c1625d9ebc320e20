#include "tools/report/layer_time.h"

#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/optim/optimizer.h"

namespace lockstep::tools {
namespace {

std::vector<Variable> parameters_of(std::span<const LayerTensors> layers) {
  std::vector<Variable> parameters;
  for (const LayerTensors& layer : layers) {
    parameters.insert(parameters.end(), {layer.weight, layer.bias});
  }
  return parameters;
}

// It does an update's work and changes no parameter.
optim::SgdOptions still() {
  optim::SgdOptions options;
  options.learning_rate = 0;
  options.momentum = 0.9;
  return options;
}

}  // namespace

LayerTime measure_layer(std::span<LayerTensors> layers, kernels::Activation activation) {
  optim::Sgd optimizer(parameters_of(layers), still());
  std::vector<Variable> results(layers.size());
  Times forward;
  Times backward;
  while (!forward.are_enough() || !backward.are_enough()) {
    forward.add([&] {
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto& [x, weight, bias] = layers[i];
        results[i] = linear(x, weight, bias, activation);
      }
    });
    const Tensor& y = results[0].value();
    const Tensor grad = Tensor::full(y.shape(), 1.0, y.dtype(), y.device());
    backward.add([&] {
      for (Variable& result : results) result.backward(grad);
    });
    optimizer.step();
    // A training step adds to no gradient: it makes them anew.
    for (LayerTensors& layer : layers) {
      for (Variable* variable : {&layer.x, &layer.weight, &layer.bias}) variable->clear_grad();
    }
  }
  const auto count = static_cast<double>(layers.size());
  return {forward.median_seconds() / count, backward.median_seconds() / count, backward.spread()};
}

}  // namespace lockstep::tools
