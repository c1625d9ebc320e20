#include "tools/report/layer_time.h"

#include <vector>

#include "engine/autograd/ops/ops.h"

namespace lockstep::tools {

LayerTime measure_layer(std::span<LayerTensors> layers, kernels::Activation activation) {
  const auto count = static_cast<double>(layers.size());
  std::vector<Variable> results(layers.size());
  LayerTime time;
  time.forward_seconds = median_seconds([&] {
                           for (std::size_t i = 0; i < layers.size(); ++i) {
                             const auto& [x, weight, bias] = layers[i];
                             results[i] = linear(x, weight, bias, activation);
                           }
                         }) /
                         count;
  const Tensor& y = results[0].value();
  const Tensor grad = Tensor::full(y.shape(), 1.0, y.dtype(), y.device());
  // A training step adds to no gradient: it makes them anew.
  const auto clear = [&] {
    for (LayerTensors& layer : layers) {
      for (Variable* variable : {&layer.x, &layer.weight, &layer.bias}) variable->clear_grad();
    }
  };
  time.backward_seconds = median_seconds(clear,
                                         [&] {
                                           for (Variable& result : results)
                                             result.backward(grad, Graph::retain);
                                         }) /
                          count;
  clear();
  return time;
}

}  // namespace lockstep::tools
