#include "tools/prediction/run_workload.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/shown_text.h"
#include "engine/predict/kernel_cost.h"

namespace lockstep::tools {
namespace {

constexpr double kMostRows = 1e15;

// By the first row: its steps, over how many epochs, of how many rows.
std::size_t trained_rows_per_epoch(const FileRow& row, std::size_t batch) {
  if (row.num_steps == 0 || row.epoch_seconds.empty()) return batch;
  const double rows = static_cast<double>(row.num_steps) * static_cast<double>(batch) /
                      static_cast<double>(row.epoch_seconds.size());
  return std::max(batch, static_cast<std::size_t>(std::min(rows, kMostRows)));
}

std::string value_or(const RunFile& file, std::string_view flag, const char* missing) {
  const std::string value = file.config_value(flag);
  return value.empty() ? missing : shown(value);
}

// The weights and the bias of a layer of `inputs` units, if that is what it is; then its outputs
// are the next one's inputs.
std::vector<std::size_t> tensors_of(std::size_t parameter_bytes, std::size_t& inputs) {
  const std::size_t parameters = parameter_bytes / sizeof(float);
  const std::size_t outputs = parameters / (inputs + 1);
  if (outputs * (inputs + 1) != parameters) return {parameters * sizeof(float)};
  const std::size_t weights = outputs * inputs;
  inputs = outputs;
  return {weights * sizeof(float), outputs * sizeof(float)};
}

}  // namespace

RunWorkload read_run_workload(const std::string& path) {
  const RunFile file = read_run_file(path, "predict");
  require(file.workload.has_value(), ErrorCode::Io, "predict",
          "'{}' has no \"workload\"; write it with lockstep train or compare", shown(path));
  const bool is_cuda = file.config_value("device") == "cuda" && !file.host.gpus.empty();
  RunWorkload run;
  run.model = value_or(file, "model", "a model");
  run.dataset = value_or(file, "dataset", "data");
  run.measured_on = is_cuda ? shown(file.host.gpus[0]) : "cpu";
  run.step = *file.workload;
  if (run.step.rows_per_epoch) {
    run.rows_per_epoch = *run.step.rows_per_epoch;
  } else {
    run.epoch = RunWorkload::Epoch::run;
    run.rows_per_epoch = trained_rows_per_epoch(file.rows[0], run.step.batch);
  }
  return run;
}

bool is_measured_on(const RunWorkload& run, const predict::DeviceProfile& device) {
  return run.measured_on.find(device.name) != std::string::npos;
}

predict::Workload workload_on(const RunWorkload& run, const predict::DeviceProfile& device,
                              double batch) {
  predict::Workload workload;
  workload.input_bytes = run.step.input_bytes_per_row * batch;
  const double scale = batch / static_cast<double>(run.step.batch);
  const bool is_measured = is_measured_on(run, device);
  auto inputs = static_cast<std::size_t>(run.step.input_bytes_per_row) / sizeof(float);
  double bytes = 0;
  for (const FileLayer& layer : run.step.layers) {
    const auto weight_bytes = static_cast<double>(layer.parameter_bytes);
    const double product = predict::product_seconds(device, batch, weight_bytes);
    const double num_backward = &layer == run.step.layers.data() ? 1 : 2;
    workload.layers.push_back(
        {layer.name, is_measured ? layer.forward_seconds * scale : product,
         is_measured ? layer.backward_seconds * scale : num_backward * product,
         tensors_of(layer.parameter_bytes, inputs)});
    bytes += weight_bytes;
  }
  if (is_measured) {
    workload.optimizer_seconds = run.step.optimizer_seconds;
    return workload;
  }
  workload.optimizer_seconds = predict::update_seconds(device, bytes);
  // The loss and its gradient.
  workload.layers.back().forward_seconds += device.launch_seconds;
  workload.layers.back().backward_seconds += device.launch_seconds;
  return workload;
}

}  // namespace lockstep::tools
