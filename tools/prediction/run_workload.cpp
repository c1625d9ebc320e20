#include "tools/prediction/run_workload.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/shown_text.h"

namespace lockstep::tools {
namespace {

constexpr double kUpdatePasses = 5;
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
  double bytes = 0;
  for (const FileLayer& layer : run.step.layers) {
    const auto weight_bytes = static_cast<double>(layer.parameter_bytes);
    const double arithmetic = 2 * batch * weight_bytes / sizeof(float) /
                              (kArithmeticEfficiency * device.flops_per_second);
    const double traffic = weight_bytes / (kTrafficEfficiency * device.memory_bytes_per_second);
    const double product = std::max(arithmetic, traffic) + device.launch_seconds;
    const double num_backward = &layer == run.step.layers.data() ? 1 : 2;
    workload.layers.push_back(
        {layer.name,
         is_measured ? layer.forward_seconds * scale : product,
         is_measured ? layer.backward_seconds * scale : num_backward * product,
         {layer.parameter_bytes / sizeof(float) * sizeof(float)}});
    bytes += weight_bytes;
  }
  if (is_measured) {
    workload.optimizer_seconds = run.step.optimizer_seconds;
    return workload;
  }
  workload.optimizer_seconds =
      device.launch_seconds +
      kUpdatePasses * bytes / (kTrafficEfficiency * device.memory_bytes_per_second);
  workload.fixed_seconds = 2 * device.launch_seconds;  // the loss and its gradient
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
