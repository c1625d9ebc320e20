#include "tools/whatif/memory_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tools/run/sample_step.h"
#include "tools/run/task.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

using predict::DeviceMemory;
using predict::Strategy;

// A step that needs more is not run here, but extended from smaller ones.
constexpr double kMostMeasuredBytes = 128.0 * (1 << 20);
constexpr std::size_t kMostDevices = 1024;

// The engine's model that the task trains, and rows of its size; empty if they cannot be made
// without data.
struct OwnModel {
  std::string name = {};
  nn::ModelData data = {};
};

OwnModel own_model(const PredictionTask& task) {
  const std::string name = task.net ? task.net->name : task.run.model;
  if (task.net && !name.starts_with("mlp:")) return {};
  try {
    return {name, rows_for(name, task.net ? "" : task.run.dataset)};
  } catch (const Error&) {  // tokens, or a file's own data
    return {};
  }
}

}  // namespace

StepMemory::StepMemory(const PredictionTask& task, predict::StateOptimizer optimizer)
    : memory_bytes_(task.topology.device.memory_bytes) {
  const OwnModel own = own_model(task);
  own_model_ = own.name;
  own_data_ = own.data;
  options_.optimizer = optimizer;
  options_.schedule = task.schedule;
  if (task.net && task.net->precision == Precision::bf16) {
    options_.numbers = predict::Numbers::mixed;
  }
  if (!own_model_.empty()) options_.optimizer = predict::StateOptimizer::sgd;
  if (task.net && task.net->memory) {
    net_ = *task.net->memory;
    return;
  }
  std::vector<double> layers;
  for (const FileLayer& layer : task.run.step.layers) {
    layers.push_back(static_cast<double>(layer.parameter_bytes) / sizeof(float));
  }
  if (task.net) {
    for (const LayerShape& shape : task.net->shapes) layers.push_back(shape.weights + shape.biases);
  }
  net_.parameters = task.net ? task.net->parameters : 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!task.net) net_.parameters += layers[i];
    net_.largest_unit = std::max(net_.largest_unit, layers[i]);
    most_of_two_layers_ = std::max(most_of_two_layers_, layers[i] + (i > 0 ? layers[i - 1] : 0));
  }
  net_.has_activations = !own_model_.empty();
}

double StepMemory::measure_own(std::size_t batch) {
  const auto [found, is_new] = own_measured_.try_emplace(batch, 0);
  if (!is_new) return found->second;
  SampleStep step(own_model_, own_data_, batch, Device{});
  step.run();
  return found->second = static_cast<double>(step.measure_peak_bytes());
}

double StepMemory::own_activation_bytes(std::size_t batch) {
  const double states = 3 * sizeof(float) * net_.parameters;
  const double row = (measure_own(4) - measure_own(2)) / 2;  // batch norm needs two rows
  const auto rows = static_cast<double>(batch);
  if (batch <= 4 || row * rows <= kMostMeasuredBytes) {
    return measure_own(std::max<std::size_t>(batch, 2)) - states;
  }
  const auto most = std::max<std::size_t>(4, static_cast<std::size_t>(kMostMeasuredBytes / row));
  const double least = measure_own(most / 2);
  const double slope = (measure_own(most) - least) / static_cast<double>(most - most / 2);
  return least + slope * (rows - static_cast<double>(most / 2)) - states;
}

// engine/parallel/sharded/sharded.h has the table. DDP makes gradients in their buckets.
double StepMemory::own_bucket_bytes(const predict::MemoryOptions& options) const {
  if (options.num_devices < 2) return 0;
  const double two_layers = sizeof(float) * most_of_two_layers_;
  switch (options.strategy) {
    case Strategy::zero1:
      return sizeof(float) * net_.parameters / static_cast<double>(options.num_devices);
    case Strategy::zero2:
      return two_layers;
    case Strategy::zero3:
      return 2 * two_layers;
    default:
      return 0;
  }
}

StepMemory::Row StepMemory::row(Strategy strategy, std::size_t num_devices, std::size_t samples) {
  predict::MemoryOptions options = options_;
  options.strategy = strategy;
  options.num_devices = num_devices;
  const std::size_t shares = predict::is_data_parallel(strategy) ? 1 : num_devices;
  const std::size_t batch = samples * shares;
  options.num_micro_batches =
      plan::fitting_micro_batches(options.schedule, num_devices, 4 * num_devices, batch);
  options.batch = batch;
  if (own_model_.empty()) {
    return {predict::device_memory(net_, options),
            predict::largest_batch(net_, options, memory_bytes_) / shares};
  }
  Row row{predict::device_memory(net_, options)};
  row.memory.buckets = own_bucket_bytes(options);
  const double fixed = row.memory.total() - row.memory.activations;
  const double share = predict::kept_share(options);
  row.memory.activations = share * own_activation_bytes(batch);
  const double three_batches = share * own_activation_bytes(4 * batch) - row.memory.activations;
  const double sample = three_batches / (3.0 * static_cast<double>(batch));
  const double left = memory_bytes_ - fixed - row.memory.activations;
  const double largest = static_cast<double>(batch) + (sample > 0 ? std::floor(left / sample) : 0);
  row.largest_batch = static_cast<std::size_t>(std::max(0.0, largest)) / shares;
  return row;
}

std::string StepMemory::source() const {
  const std::string optimizer =
      options_.optimizer == predict::StateOptimizer::adam ? "Adam" : "SGD with momentum";
  if (!own_model_.empty()) {
    return fmt::format("measured on steps of {} here, with {}, float32", own_model_, optimizer);
  }
  const char* const numbers = options_.numbers == predict::Numbers::mixed
                                  ? "16-bit numbers with float32 weights"
                                  : "float32";
  return fmt::format("{} with {}{}", numbers, optimizer,
                     knows_activations() ? ", by published formulas"
                                         : "; without activations, for which a --family is needed");
}

namespace {

std::string gigabytes(double bytes) {
  if (bytes == 0) return "0";
  return fmt::format("{:.{}f}", bytes / 1e9, bytes < 9.995e7 ? 3 : bytes < 9.995e9 ? 2 : 1);
}

nlohmann::ordered_json memory_json(const DeviceMemory& memory) {
  return {{"parameters", memory.parameters}, {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},   {"activations", memory.activations},
          {"buckets", memory.buckets},       {"workspace", memory.workspace}};
}

// "zero3 fits on 2 devices of this kind and more".
std::string fit_sentence(StepMemory& memory, Strategy strategy, std::size_t samples,
                         const predict::DeviceProfile& device) {
  for (std::size_t devices = 1; devices <= kMostDevices; devices *= 2) {
    if (memory.row(strategy, devices, samples).memory.total() > device.memory_bytes) continue;
    return fmt::format("{} fits on {} {}{}", predict::to_string(strategy), devices, device.name,
                       devices == 1 ? "" : " and more");
  }
  return fmt::format("{} does not fit on {} {}", predict::to_string(strategy), kMostDevices,
                     device.name);
}

}  // namespace

std::size_t samples_at_a_time(const PredictionTask& task, const PredictedRow& row) {
  return std::max<std::size_t>(1, row.batch / row.devices / task.accumulate);
}

std::vector<std::string> memory_lines(const PredictionTask& task, StepMemory& memory,
                                      std::span<const PredictedRow> rows,
                                      nlohmann::ordered_json& json_rows) {
  const predict::DeviceProfile& device = task.topology.device;
  std::vector<std::string> lines{
      fmt::format("memory of each {} in GB, of {:g}", device.name, device.memory_bytes / 1e9),
      fmt::format("{:<12}{:>8}{:>8}{:>7}{:>7}{:>7}{:>8}{:>7}{:>6}{:>8}", "mode", "devices",
                  "params", "grads", "optim.", "activ.", "buckets", "other", "total", "most")};
  std::size_t samples = 1;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PredictedRow& row = rows[i];
    samples = samples_at_a_time(task, row);
    const StepMemory::Row found = memory.row(row.strategy, row.devices, samples);
    const DeviceMemory& bytes = found.memory;
    const bool fits = bytes.total() <= device.memory_bytes;
    const std::string largest = !memory.knows_activations() ? "?"
                                : found.largest_batch == 0  ? "none"
                                                            : std::to_string(found.largest_batch);
    lines.push_back(fmt::format(
        "{}{:>8}{:>7}{:>7}{:>7}{:>8}{:>7}{:>6}{:>8}{}", name_columns(row),
        gigabytes(bytes.parameters), gigabytes(bytes.gradients), gigabytes(bytes.optimizer),
        memory.knows_activations() ? gigabytes(bytes.activations) : "?", gigabytes(bytes.buckets),
        gigabytes(bytes.workspace), gigabytes(bytes.total()), largest, fits ? "" : " !"));
    json_rows[i]["memory_bytes"] = memory_json(bytes);
    json_rows[i]["largest_batch"] = found.largest_batch;
  }
  std::string sentences;
  for (const Strategy strategy : task.strategies) {
    if (strategy == Strategy::single) continue;
    sentences += (sentences.empty() ? "" : ", ") + fit_sentence(memory, strategy, samples, device);
  }
  const std::string with =
      memory.knows_activations()
          ? fmt::format("with {} sample{} at a time for each", samples, samples == 1 ? "" : "s")
          : "without activations";
  lines.push_back(fmt::format("{}: {}", with, sentences));
  lines.push_back(fmt::format(
      "{}; other: CUDA's context, and {:.0f} % for what an allocator cannot use; most: samples "
      "at a time that fit; !: does not fit",
      memory.source(), 100 * predict::kFragmentation));
  return lines;
}

}  // namespace lockstep::tools
