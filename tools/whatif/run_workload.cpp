#include "tools/whatif/run_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "simulate/predict/kernel_cost.h"

namespace lockstep::tools {
namespace {

std::string value_or(const RunFile& file, std::string_view flag, const char* missing) {
  const std::string value = file.config_value(flag);
  return value.empty() ? missing : shown(value);
}

double total_seconds(const predict::DeviceProfile& device, const std::vector<double>& kernels,
                     double rows) {
  double seconds = 0;
  for (const double bytes : kernels) seconds += predict::traffic_seconds(device, bytes * rows);
  return seconds;
}

// Two float64 numbers per feature, and the number of rows. They are made from x, or from x and a
// gradient: a half, or two thirds, of the bytes that the pass itself reads and writes.
predict::LayerWork::SharedStatistics statistics_of(const predict::DeviceProfile& device,
                                                   const FileLayer& layer, double rows) {
  if (layer.buffer_bytes.empty() || layer.forward_bytes.empty() || layer.backward_bytes.empty()) {
    return {};
  }
  const std::size_t features = layer.buffer_bytes[0] / sizeof(float);
  return {(2 * features + 1) * sizeof(double),
          predict::traffic_seconds(device, layer.forward_bytes[0] * rows / 2),
          predict::traffic_seconds(device, layer.backward_bytes[0] * rows * 2 / 3)};
}

predict::LayerWork work_of(const predict::DeviceProfile& device, const FileLayer& layer,
                           double rows, predict::InputGradient input) {
  predict::LayerWork work{layer.name};
  const auto of_rows = [&](predict::LayerShape shape) {
    shape.rows *= rows;
    shape.image_bytes *= rows;
    return shape;
  };
  if (layer.product)
    work = predict::dense_layer(device, layer.name, of_rows(*layer.product), input);
  if (layer.attention) {
    const double seconds = predict::forward_seconds(device, of_rows(*layer.attention));
    work.forward_seconds += seconds;
    work.backward_seconds += predict::kAttentionBackward * seconds;
  }
  // A weight and a bias. Or two alike, as in a norm; then the product uses another layer's weight.
  const bool has_weight = layer.product && work.tensor_bytes[0] <= layer.parameter_bytes;
  const std::size_t first = has_weight ? work.tensor_bytes[0] : layer.parameter_bytes / 2;
  work.tensor_bytes = {first};
  if (layer.parameter_bytes > first) work.tensor_bytes.push_back(layer.parameter_bytes - first);
  work.forward_seconds += total_seconds(device, layer.forward_bytes, rows);
  work.backward_seconds += total_seconds(device, layer.backward_bytes, rows);
  work.buffer_bytes = layer.buffer_bytes;
  work.output_bytes = layer.output_bytes * rows;
  return work;
}

// Replaces the times by those of the run, scaled from its own batch to `batch` rows.
void take_measured_times(const RunWorkload& run, double batch, predict::Workload& workload) {
  const double rows = batch / static_cast<double>(run.step.batch);
  for (std::size_t i = 0; i < workload.layers.size(); ++i) {
    workload.layers[i].forward_seconds = run.step.layers[i].forward_seconds * rows;
    workload.layers[i].backward_seconds = run.step.layers[i].backward_seconds * rows;
  }
  workload.optimizer_seconds = run.step.optimizer_seconds;
}

}  // namespace

RunWorkload read_run_workload(const std::string& path) {
  const RunFile file = read_run_file(path, "predict");
  require(file.workload.has_value(), ErrorCode::Io, "predict",
          "'{}' has no \"workload\"; write it with lockstep train or compare", shown(path));
  const std::string accumulate = file.config_value("accumulate");
  require(accumulate.empty() || accumulate == "1", ErrorCode::Usage, "predict",
          "'{}' is of a run with --accumulate {}, whose steps have several backward passes; "
          "predicted are steps of one: write it without, and give predict --accumulate",
          shown(path), shown(accumulate));
  const bool is_cuda = file.config_value("device") == "cuda" && !file.host.gpus.empty();
  RunWorkload run;
  run.model = value_or(file, "model", "a model");
  run.dataset = value_or(file, "dataset", "data");
  run.shares_statistics = file.config_value("sync_batch_norm") == "true";
  run.interrupted = file.interrupted;
  const RunRow& first = file.rows[0];
  run.measured_on = is_cuda ? shown(file.host.gpus[0])
                            : device_name(shown(file.host.cpu), first.threads_per_device);
  run.step = *file.workload;
  for (const auto seconds : {&FileLayer::forward_seconds, &FileLayer::backward_seconds}) {
    const bool takes_time = std::ranges::any_of(
        run.step.layers, [&](const FileLayer& layer) { return layer.*seconds > 0; });
    require(takes_time, ErrorCode::Io, "predict",
            "'{}': its layers take 0 s {}; write it again with lockstep train or compare",
            shown(path), seconds == &FileLayer::forward_seconds ? "forward" : "backward");
  }
  run.rows_per_epoch = run.step.rows_per_epoch;
  return run;
}

std::string device_name(const std::string& cpu, std::size_t threads_per_device) {
  return fmt::format("{}, {} thread{}", cpu, threads_per_device,
                     threads_per_device == 1 ? "" : "s");
}

bool is_measured_on(const RunWorkload& run, const predict::DeviceProfile& device) {
  return run.measured_on.find(device.name) != std::string::npos;
}

predict::Workload workload_on(const RunWorkload& run, const predict::DeviceProfile& device,
                              double batch) {
  predict::Workload workload;
  workload.input_bytes = run.step.input_bytes_per_row * batch;
  double bytes = 0;
  for (const FileLayer& layer : run.step.layers) {
    const bool is_first = workload.layers.empty();
    workload.layers.push_back(
        work_of(device, layer, batch,
                is_first ? predict::InputGradient::not_needed : predict::InputGradient::needed));
    if (run.shares_statistics) {
      workload.layers.back().statistics = statistics_of(device, layer, batch);
    }
    bytes += static_cast<double>(layer.parameter_bytes);
  }
  workload.optimizer_seconds = predict::update_seconds(device, bytes);
  // The loss is a launch each way.
  workload.layers.back().forward_seconds += device.launch_seconds;
  workload.layers.back().backward_seconds += device.launch_seconds;
  if (is_measured_on(run, device)) take_measured_times(run, batch, workload);
  return workload;
}

}  // namespace lockstep::tools
