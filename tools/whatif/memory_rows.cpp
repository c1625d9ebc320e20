#include "tools/whatif/memory_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

using predict::DeviceMemory;
using predict::Strategy;

constexpr std::size_t kMostDevices = 1024;

}  // namespace

StepMemory::StepMemory(const PredictionTask& task, predict::StateOptimizer optimizer)
    : micro_batches_(task.micro_batches),
      accumulate_(task.accumulate),
      memory_bytes_(task.topology.device.memory_bytes),
      own_(OwnMemory::of(task)) {
  options_.optimizer = own_ ? predict::StateOptimizer::sgd : optimizer;
  options_.schedule = task.schedule;
  if (task.net && task.net->precision == Precision::bf16 && !own_) {
    options_.numbers = predict::Numbers::mixed;
  }
  if (task.net && task.net->memory) {
    net_ = *task.net->memory;
    return;
  }
  net_.has_activations = own_.has_value();
  net_.parameters = own_       ? own_->parameter_bytes() / sizeof(float)
                    : task.net ? task.net->parameters
                               : 0;
  for (const FileLayer& layer : task.run.step.layers) {
    const double parameters = static_cast<double>(layer.parameter_bytes) / sizeof(float);
    if (!own_) net_.parameters += parameters;
    net_.largest_unit = std::max(net_.largest_unit, parameters);
  }
  if (!task.net) return;
  for (const LayerShape& shape : task.net->shapes) {
    net_.largest_unit = std::max(net_.largest_unit, shape.weights + shape.biases);
  }
}

StepMemory::Row StepMemory::row(Strategy strategy, std::size_t num_devices, std::size_t samples) {
  predict::MemoryOptions options = options_;
  options.strategy = strategy;
  options.num_devices = num_devices;
  const std::size_t shares = predict::is_data_parallel(strategy) ? 1 : num_devices;
  options.batch = samples * shares;
  if (own_) return own_row(options, samples);
  options.num_micro_batches = plan::fitting_micro_batches(
      options.schedule, num_devices, micro_batches_.value_or(4 * num_devices), options.batch);
  return {predict::device_memory(net_, options),
          predict::largest_batch(net_, options, memory_bytes_) / shares};
}

// Parameters, gradients and the optimizer's state follow from the mode. The rest of the peak is
// what a single device's step holds besides, and what the mode adds.
StepMemory::Row StepMemory::own_row(const predict::MemoryOptions& options, std::size_t samples) {
  const auto states = [](const DeviceMemory& memory) {
    return memory.parameters + memory.gradients + memory.optimizer;
  };
  const std::size_t rows = samples * accumulate_;
  const double peak = own_->peak({options.strategy, options.num_devices, rows});
  Row row{predict::device_memory(net_, options)};
  DeviceMemory& memory = row.memory;
  memory.activations = std::max(0.0, peak - states(memory));
  memory.buckets = 0;
  if (options.num_devices > 1 && options.strategy != Strategy::pipeline) {
    const double alone = own_->peak({Strategy::single, 1, rows}) - 3 * own_->parameter_bytes();
    memory.buckets = std::clamp(memory.activations - alone, 0.0, memory.activations);
    memory.activations -= memory.buckets;
  }
  memory.workspace = (own_->is_on_cpu() ? 0 : predict::kContextBytes) +
                     predict::kFragmentation * (memory.total() - memory.workspace);
  const double three_batches = own_->peak({options.strategy, options.num_devices, 4 * rows}) - peak;
  const double sample = three_batches / (3.0 * static_cast<double>(samples));
  const double left = memory_bytes_ - memory.total();
  const double largest =
      static_cast<double>(samples) + (sample > 0 ? std::floor(left / sample) : 0);
  row.largest_batch = static_cast<std::size_t>(std::max(0.0, largest));
  return row;
}

std::string StepMemory::other() const {
  return fmt::format("{}{:.0f} % for what an allocator cannot use",
                     own_ && own_->is_on_cpu() ? "" : "CUDA's context, and ",
                     100 * predict::kFragmentation);
}

std::string StepMemory::source() const {
  const std::string optimizer =
      options_.optimizer == predict::StateOptimizer::adam ? "Adam" : "SGD with momentum";
  if (own_)
    return fmt::format("measured on steps of {} here, with {}, float32", own_->model(), optimizer);
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
  const std::string with = memory.knows_activations() ? fmt::format("with {} at a time for each",
                                                                    count_text(samples, "sample"))
                                                      : "without activations";
  lines.push_back(fmt::format("{}: {}", with, sentences));
  lines.push_back(fmt::format("{}; other: {}; most: samples at a time that fit; !: does not fit",
                              memory.source(), memory.other()));
  return lines;
}

}  // namespace lockstep::tools
