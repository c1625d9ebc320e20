#include "tools/run/workload.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"
#include "tools/run/layer_recorder.h"
#include "tools/run/step_statistics.h"

namespace lockstep::tools {
namespace {

// Times of the same work, repeated nine times, or until they add up to a tenth of a second, but at
// least three times.
class Times {
 public:
  template <typename Run>
  void add(const Run& run) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    run();
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total_ += seconds_.back();
  }
  bool are_enough() const {
    constexpr std::size_t kRuns = 9;
    constexpr std::size_t kFewestRuns = 3;
    constexpr double kLongest = 0.1;
    return seconds_.size() >= kRuns || (seconds_.size() >= kFewestRuns && total_ >= kLongest);
  }
  double median_seconds() const { return median(seconds_); }

 private:
  std::vector<double> seconds_;
  double total_ = 0;
};

// An optimizer that does an update's work and changes no parameter.
optim::Sgd still_optimizer(const std::vector<Variable>& parameters) {
  optim::SgdOptions options;
  options.learning_rate = 0;
  options.momentum = 0.9;
  return optim::Sgd(parameters, options);
}

// An operation's cost besides arithmetic: forward and backward of one multiplied number.
double measure_seconds_per_op(Device device) {
  constexpr int kRepeats = 1000;
  const Variable x(Tensor::full({1}, 1.0, DType::float32, device), RequiresGrad::yes);
  Times times;
  while (!times.are_enough()) {
    times.add([&] {
      Variable y = x;
      for (int i = 0; i < kRepeats; ++i) y = scale(y, 1.0);
      y.backward();
    });
  }
  return times.median_seconds() / kRepeats;
}

std::vector<FileLayer> measure_layers(nn::Module& model, const TrainingTask& task, Device device) {
  Rng rng(task.seed);
  // More may not fit into memory.
  const std::size_t num_rows =
      std::max<std::size_t>(1, task.rows_of_full_batch() / task.accumulate);
  const Shape shape = task.batch_shape(num_rows);
  const Variable x(task.is_text() ? Tensor::zeros(shape, DType::int64, device)
                                  : Tensor::uniform(shape, 0, 1, rng, task.dtype, device));
  optim::Sgd optimizer = still_optimizer(model.parameters());
  LayerRecorder recorder(model);
  Times passes;
  while (!passes.are_enough()) {
    passes.add([&] { recorder.record(num_rows, [&] { return model(x); }); });
    optimizer.step();
    optimizer.zero_grad();
  }
  std::vector<FileLayer> layers = recorder.layers();
  for (FileLayer& layer : layers) {
    layer.forward_seconds *= static_cast<double>(task.accumulate);
    layer.backward_seconds *= static_cast<double>(task.accumulate);
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
  // Two rows, because batch norm has no statistics over one.
  const Variable x(Tensor::zeros(task.batch_shape(2), task.batch_dtype(), device));
  sum(model(x)).backward();
  for (auto& [parameter, id] : hooks) parameter.remove_grad_hook(id);
  return order;
}

}  // namespace

FileWorkload measure_workload(const TrainingTask& task, Device device, double optimizer_seconds) {
  const std::shared_ptr<nn::Module> model =
      nn::make_model(task.model, task.model_data(), task.seed, task.dtype, device);
  FileWorkload workload;
  workload.batch = task.rows_of_full_batch();
  workload.rows_per_epoch = task.data->train.num_rows();
  workload.input_bytes_per_row =
      static_cast<double>(task.data->train.num_features * size_of(task.batch_dtype()));
  workload.host_seconds_per_op = measure_seconds_per_op(device);
  workload.optimizer_seconds = optimizer_seconds;
  workload.layers = measure_layers(*model, task, device);
  workload.ready_order = measure_ready_order(*model, task, device);
  return workload;
}

namespace {

nlohmann::ordered_json layer_json(const FileLayer& layer) {
  nlohmann::ordered_json json{{"name", layer.name},
                              {"forward_seconds", layer.forward_seconds},
                              {"backward_seconds", layer.backward_seconds},
                              {"parameter_bytes", layer.parameter_bytes}};
  for (const auto& [name, product] :
       {std::pair("product", &layer.product), std::pair("attention", &layer.attention)}) {
    if (!*product) continue;
    json[name] = {{"rows", (*product)->rows},
                  {"inputs", (*product)->inputs},
                  {"outputs", (*product)->outputs},
                  {"image_bytes", (*product)->image_bytes}};
  }
  json["forward_bytes"] = layer.forward_bytes;
  json["backward_bytes"] = layer.backward_bytes;
  json["buffer_bytes"] = layer.buffer_bytes;
  json["output_bytes"] = layer.output_bytes;
  return json;
}

}  // namespace

nlohmann::ordered_json workload_json(const FileWorkload& step) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const FileLayer& layer : step.layers) layers.push_back(layer_json(layer));
  return {{"batch", step.batch},
          {"input_bytes_per_row", step.input_bytes_per_row},
          {"host_seconds_per_op", step.host_seconds_per_op},
          {"optimizer_seconds", step.optimizer_seconds},
          {"layers", layers},
          {"ready_order", step.ready_order},
          {"rows_per_epoch", step.rows_per_epoch}};
}

}  // namespace lockstep::tools
