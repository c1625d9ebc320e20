#include "tools/report/workload.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/autograd/ops/sequences.h"
#include "engine/nn/models.h"
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

using Run = std::function<Variable()>;

// The median times of forward passes, which are `runs`, and of their backward passes. Gradients of
// the variables are cleared after each.
LayerTime measure_passes(std::span<const Run> runs, std::span<Variable> variables,
                         optim::Optimizer& optimizer) {
  std::vector<Variable> results(runs.size());
  Times forward;
  Times backward;
  while (!forward.are_enough() || !backward.are_enough()) {
    forward.add([&] {
      for (std::size_t i = 0; i < runs.size(); ++i) results[i] = runs[i]();
    });
    const Tensor& y = results[0].value();
    const Tensor grad = Tensor::full(y.shape(), 1.0, y.dtype(), y.device());
    backward.add([&] {
      for (Variable& result : results) result.backward(grad);
    });
    optimizer.step();
    // A training step adds to no gradient: it makes them anew.
    for (Variable& variable : variables) variable.clear_grad();
  }
  const auto count = static_cast<double>(runs.size());
  return {forward.median_seconds() / count, backward.median_seconds() / count, backward.spread()};
}

// What an operation costs beside its arithmetic: forward and backward of one multiplied number.
double measure_seconds_per_op(Device device) {
  constexpr int kRepeats = 1000;
  const Variable x(Tensor::full({1}, 1.0, DType::float32, device), RequiresGrad::yes);
  const Times times = time_repeatedly([&] {
    Variable y = x;
    for (int i = 0; i < kRepeats; ++i) y = scale(y, 1.0);
    y.backward();
  });
  return times.median_seconds() / kRepeats;
}

// Modules that follow each other, of which the first alone has parameters, unless it is the first
// of all.
struct Group {
  std::string name;
  std::vector<nn::NamedModule> modules;
  std::vector<Variable> parameters;
  std::function<Variable(const Variable&)> forward = {};  // none: the modules in turn
  std::vector<Variable> shared = {};  // with another group, whose parameters they are

  Variable run(const Variable& x) const {
    return forward ? forward(x) : nn::run_in_turn(modules, x);
  }
};

// The embedding, each block, and the last layer, whose weight is the embedding's.
std::vector<Group> groups_of_gpt(const nn::Module& gpt) {
  const nn::Module& transformer = *gpt.children()[0].second;
  const auto part = [&](std::string_view name) {
    return std::ranges::find(transformer.children(), name, &nn::NamedModule::first)->second;
  };
  const std::vector<Variable> tables{part("wte")->parameters()[0], part("wpe")->parameters()[0]};
  std::vector<Group> groups{{"transformer.wte", {}, tables}};
  groups.back().forward = [tables](const Variable& tokens) {
    return embedding(tokens.value(), tables[0], tables[1]);
  };
  for (const nn::NamedModule& block : part("h")->children()) {
    groups.push_back({"transformer.h." + block.first, {block}, block.second->parameters()});
  }
  const std::shared_ptr<nn::Module> norm = part("ln_f");
  groups.push_back({"transformer.ln_f", {}, norm->parameters()});
  const Variable last(tables[0].value(), RequiresGrad::yes);
  groups.back().shared = {last};
  groups.back().forward = [norm, last](const Variable& x) {
    const Shape& shape = x.shape();
    return linear(reshape((*norm)(x), {shape[0] * shape[1], shape[2]}), last, {});
  };
  return groups;
}

std::vector<Group> groups_of(const nn::Module& model) {
  if (dynamic_cast<const nn::Gpt*>(&model)) return groups_of_gpt(model);
  std::vector<Group> groups;
  for (const nn::NamedModule& child : model.children()) {
    const std::vector<Variable> parameters = child.second->parameters();
    const bool begins =
        !parameters.empty() && (groups.empty() || !groups.back().parameters.empty());
    if (groups.empty() || begins) groups.emplace_back();
    Group& group = groups.back();
    if (!parameters.empty()) group.name = child.first;
    group.modules.push_back(child);
    group.parameters.insert(group.parameters.end(), parameters.begin(), parameters.end());
  }
  return groups;
}

std::vector<FileLayer> measure_layers(const nn::Module& model, const TrainingTask& task,
                                      Device device) {
  std::vector<FileLayer> layers;
  Rng rng(task.seed);
  Tensor input = task.is_text()
                     ? Tensor::zeros(task.batch_shape(task.batch), DType::int64, device)
                     : Tensor::uniform(task.batch_shape(task.batch), 0, 1, rng, task.dtype, device);
  for (const Group& group : groups_of(model)) {
    // The first layer's input needs no gradient, so its backward pass computes none.
    Variable x(input, layers.empty() ? RequiresGrad::no : RequiresGrad::yes);
    std::vector<Variable> all = group.parameters;
    std::size_t num_bytes = 0;
    for (const Variable& parameter : all) num_bytes += parameter.value().num_bytes();
    optim::Sgd optimizer(all, still());
    all.insert(all.end(), group.shared.begin(), group.shared.end());
    all.push_back(x);
    const Run run = [&] { return group.run(x); };
    const LayerTime time = measure_passes({&run, 1}, all, optimizer);
    layers.push_back({group.name, time.forward_seconds, time.backward_seconds, num_bytes});
    const NoGradScope no_grad;
    input = run().value();
  }
  return layers;
}

std::vector<std::string> measure_ready_order(nn::Module& model, const TrainingTask& task,
                                             Device device) {
  std::vector<std::string> order;
  std::vector<std::pair<Variable, std::uint64_t>> hooks;
  for (auto& [name, parameter] : model.named_parameters()) {
    hooks.emplace_back(parameter, parameter.on_grad_ready([&order, name = name](const Variable&) {
      order.push_back(name);
    }));
  }
  // Two rows: batch norm has no statistics of one.
  const Variable x(Tensor::zeros(task.batch_shape(2), task.batch_dtype(), device));
  sum(model(x)).backward();
  for (auto& [parameter, id] : hooks) parameter.remove_grad_hook(id);
  return order;
}

}  // namespace

LayerTime measure_layer(std::span<LayerTensors> layers, kernels::Activation activation) {
  optim::Sgd optimizer(parameters_of(layers), still());
  std::vector<Run> runs;
  std::vector<Variable> all;
  for (const LayerTensors& layer : layers) {
    runs.emplace_back(
        [&layer, activation] { return linear(layer.x, layer.weight, layer.bias, activation); });
    all.insert(all.end(), {layer.x, layer.weight, layer.bias});
  }
  return measure_passes(runs, all, optimizer);
}

FileWorkload measure_workload(const TrainingTask& task, Device device, double optimizer_seconds) {
  const std::shared_ptr<nn::Module> model =
      nn::make_model(task.model, task.model_data(), task.seed, task.dtype, device);
  FileWorkload workload;
  workload.batch = task.batch;
  workload.rows_per_epoch = task.data->train.num_rows();
  workload.input_bytes_per_row =
      static_cast<double>(task.data->train.num_features * size_of(task.batch_dtype()));
  workload.host_seconds_per_op = measure_seconds_per_op(device);
  workload.optimizer_seconds = optimizer_seconds;
  workload.layers = measure_layers(*model, task, device);
  workload.ready_order = measure_ready_order(*model, task, device);
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
