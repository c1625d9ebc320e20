#include "tools/prediction/run_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "simulate/predict/kernel_cost.h"

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

// Parameters say nothing of the work of a net that uses each of them for many pixels.
bool is_convolutional(std::string_view model) {
  return model.starts_with("lenet") || model.starts_with("resnet18") || model.starts_with("cnn:");
}

// A layer of so many parameters behind `inputs` units, if that is what it is: then its outputs are
// the next one's inputs. Else of as many parameters.
predict::LayerShape shape_of(std::size_t parameter_bytes, std::size_t& inputs) {
  const std::size_t parameters = parameter_bytes / sizeof(float);
  const std::size_t outputs = parameters / (inputs + 1);
  const bool is_dense = outputs * (inputs + 1) == parameters;
  predict::LayerShape shape;
  shape.inputs = static_cast<double>(is_dense ? inputs : parameters - 1);
  shape.outputs = is_dense ? static_cast<double>(outputs) : 1;
  if (is_dense) inputs = outputs;
  return shape;
}

// A step that was measured on such a device, of batch rows in place of the run's own.
predict::Workload scaled(const RunWorkload& run, const predict::DeviceProfile& device,
                         predict::Workload own, const predict::Workload& wanted, double batch) {
  const double rows = batch / static_cast<double>(run.step.batch);
  predict::Workload workload = wanted;
  double forward = 0;
  double backward = 0;
  for (std::size_t i = 0; i < workload.layers.size(); ++i) {
    predict::LayerWork& layer = workload.layers[i];
    const FileLayer& measured = run.step.layers[i];
    // What more rows cost follows from what was measured there, or they cost in proportion.
    const auto factor = [&](double wanted_seconds, double own_seconds) {
      return device.measured ? wanted_seconds / own_seconds : rows;
    };
    forward += measured.forward_seconds;
    backward += measured.backward_seconds;
    layer.forward_seconds =
        measured.forward_seconds * factor(layer.forward_seconds, own.layers[i].forward_seconds);
    layer.backward_seconds =
        measured.backward_seconds * factor(layer.backward_seconds, own.layers[i].backward_seconds);
  }
  workload.optimizer_seconds = run.step.optimizer_seconds;
  workload.fixed_seconds = 0;
  if (!device.measured || !run.single) return workload;
  // In the step itself, with its caches as they were.
  const trace::StepBreakdown& step = *run.single;
  for (predict::LayerWork& layer : workload.layers) {
    layer.forward_seconds *= step.forward / forward;
    layer.backward_seconds *= step.backward / backward;
  }
  workload.optimizer_seconds = step.optimizer;
  workload.fixed_seconds = step.data * rows + step.copy + step.host + step.unattributed;
  return workload;
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
  const FileRow& first = file.rows[0];
  run.measured_on = is_cuda ? shown(file.host.gpus[0])
                            : device_name(shown(file.host.cpu), first.threads_per_device);
  run.step = *file.workload;
  if (first.mode == "single" && first.kind == "measured") run.single = first.typical_step;
  for (const auto seconds : {&FileLayer::forward_seconds, &FileLayer::backward_seconds}) {
    const bool takes_time = std::ranges::any_of(
        run.step.layers, [&](const FileLayer& layer) { return layer.*seconds > 0; });
    require(takes_time, ErrorCode::Io, "predict",
            "'{}': its layers take 0 s {}; write it again with lockstep train or compare",
            shown(path), seconds == &FileLayer::forward_seconds ? "forward" : "backward");
  }
  if (run.step.rows_per_epoch) {
    run.rows_per_epoch = *run.step.rows_per_epoch;
  } else {
    run.epoch = RunWorkload::Epoch::run;
    run.rows_per_epoch = trained_rows_per_epoch(file.rows[0], run.step.batch);
  }
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
  const bool is_dense = !is_convolutional(run.model);
  require(
      is_dense || is_measured_on(run, device), ErrorCode::Usage, "predict",
      "'{}' is convolutional, and its run file has times of {} alone: no sizes from which those "
      "on {} would follow",
      run.model, run.measured_on, device.name);
  const auto of_rows = [&](double rows) {
    predict::Workload workload;
    workload.input_bytes = run.step.input_bytes_per_row * rows;
    auto inputs = static_cast<std::size_t>(run.step.input_bytes_per_row) / sizeof(float);
    double bytes = 0;
    predict::LayerShape shape;
    for (const FileLayer& layer : run.step.layers) {
      shape = shape_of(layer.parameter_bytes, inputs);
      shape.rows = rows;
      const bool is_first = workload.layers.empty();
      workload.layers.push_back(predict::dense_layer(
          device, layer.name, shape,
          is_first ? predict::InputGradient::not_needed : predict::InputGradient::needed));
      bytes += shape.parameter_bytes();
    }
    workload.optimizer_seconds = predict::update_seconds(device, bytes);
    const predict::LossSeconds loss = predict::loss_seconds(device, rows, shape.outputs);
    workload.layers.back().forward_seconds += loss.forward;
    workload.layers.back().backward_seconds += loss.backward;
    workload.fixed_seconds = predict::batch_seconds(device, workload.input_bytes);
    return workload;
  };
  predict::Workload workload = of_rows(batch);
  if (!is_measured_on(run, device)) return workload;
  return scaled(run, device, of_rows(static_cast<double>(run.step.batch)), workload, batch);
}

}  // namespace lockstep::tools
