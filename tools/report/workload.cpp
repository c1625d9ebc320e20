#include "tools/report/workload.h"

#include <nlohmann/json.hpp>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
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

// What an operation costs beside its arithmetic: forward and backward of one multiplied number.
double measure_seconds_per_op(Device device) {
  constexpr int kOps = 1000;
  const Variable x(Tensor::full({1}, 1.0, DType::float32, device), RequiresGrad::yes);
  const Times times = time_repeatedly([&] {
    Variable y = x;
    for (int i = 0; i < kOps; ++i) y = scale(y, 1.0);
    y.backward();
  });
  return times.median_seconds() / kOps;
}

std::vector<FileLayer> measure_layers(const nn::MlpSpec& spec, const nn::Module& model,
                                      const TrainingTask& task, Device device) {
  std::vector<FileLayer> layers;
  const std::size_t num_layers = spec.sizes.size() - 1;
  const std::vector<Variable> parameters = model.parameters();
  Rng rng(task.seed);
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    // The first layer's input needs no gradient, so its backward pass computes none.
    const Variable x(
        Tensor::uniform({task.batch, spec.sizes[layer]}, 0, 1, rng, task.dtype, device),
        layer == 0 ? RequiresGrad::no : RequiresGrad::yes);
    const Activation activation = layer + 1 < num_layers ? spec.activation : Activation::none;
    LayerTensors tensors{x, parameters[2 * layer], parameters[2 * layer + 1]};
    const LayerTime time = measure_layer({&tensors, 1}, activation);
    layers.push_back({std::to_string(2 * layer), time.forward_seconds, time.backward_seconds,
                      tensors.weight.value().num_bytes() + tensors.bias.value().num_bytes()});
  }
  return layers;
}

std::vector<std::string> measure_ready_order(nn::Module& model, const nn::MlpSpec& spec,
                                             const TrainingTask& task, Device device) {
  std::vector<std::string> order;
  std::vector<std::pair<Variable, std::uint64_t>> hooks;
  for (auto& [name, parameter] : model.named_parameters()) {
    hooks.emplace_back(parameter, parameter.on_grad_ready([&order, name = name](const Variable&) {
      order.push_back(name);
    }));
  }
  const Variable x(Tensor::zeros({1, spec.sizes.front()}, task.dtype, device));
  sum(model(x)).backward();
  for (auto& [parameter, id] : hooks) parameter.remove_grad_hook(id);
  return order;
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

FileWorkload measure_workload(const TrainingTask& task, Device device, double optimizer_seconds) {
  const nn::MlpSpec spec = nn::parse_mlp(task.model);
  const std::shared_ptr<nn::Module> model = nn::make_mlp(spec, task.seed, task.dtype, device);
  FileWorkload workload;
  workload.batch = task.batch;
  workload.rows_per_epoch = task.data->train.num_rows();
  workload.input_bytes_per_row = static_cast<double>(spec.sizes.front() * size_of(task.dtype));
  workload.host_seconds_per_op = measure_seconds_per_op(device);
  workload.optimizer_seconds = optimizer_seconds;
  workload.layers = measure_layers(spec, *model, task, device);
  workload.ready_order = measure_ready_order(*model, spec, task, device);
  return workload;
}

nlohmann::ordered_json workload_json(const FileWorkload& step) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const FileLayer& layer : step.layers) {
    layers.push_back({{"name", layer.name},
                      {"forward_seconds", layer.forward_seconds},
                      {"backward_seconds", layer.backward_seconds},
                      {"parameter_bytes", layer.parameter_bytes}});
  }
  nlohmann::ordered_json json{{"batch", step.batch},
                              {"input_bytes_per_row", step.input_bytes_per_row},
                              {"host_seconds_per_op", step.host_seconds_per_op},
                              {"optimizer_seconds", step.optimizer_seconds},
                              {"layers", layers},
                              {"ready_order", step.ready_order}};
  if (step.rows_per_epoch) json["rows_per_epoch"] = *step.rows_per_epoch;
  return json;
}

}  // namespace lockstep::tools
