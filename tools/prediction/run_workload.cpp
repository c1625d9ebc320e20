#include "tools/prediction/run_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/input_file.h"
#include "engine/core/shown_text.h"
#include "engine/predict/json_file.h"

namespace lockstep::tools {
namespace {

constexpr std::string_view kSchema = "lockstep.run/1";
constexpr double kArithmeticEfficiency = 0.7;
constexpr double kTrafficEfficiency = 0.75;
constexpr double kUpdatePasses = 5;
constexpr double kMaxBytes = 1e15;

void require_schema(const predict::JsonFile& file) {
  const bool is_text = file.has("/schema") && file.root().at("schema").is_string();
  const std::string schema = is_text ? file.text("/schema") : "";
  if (schema == kSchema) return;
  file.fail_at("/schema",
               schema.starts_with("lockstep.")
                   ? fmt::format("expected the schema '{}', found '{}': --workload takes "
                                 "what train and compare write with --json",
                                 kSchema, shown(schema))
                   : "this is not a file of lockstep: it has no \"schema\"; --workload "
                     "takes what train and compare write with --json");
}

RunLayer read_layer(const predict::JsonFile& file, const std::string& place) {
  RunLayer layer{file.text(place + "/name"), file.number(place + "/forward_seconds"),
                 file.number(place + "/backward_seconds"), file.count(place + "/parameter_bytes")};
  if (layer.parameter_bytes < sizeof(float) ||
      static_cast<double>(layer.parameter_bytes) > kMaxBytes) {
    file.fail_at(place + "/parameter_bytes", "a layer needs 4 bytes of parameters or more");
  }
  return layer;
}

// "4.weight" belongs to layer "4".
void require_ready_order(const predict::JsonFile& file, const RunWorkload& run) {
  if (!file.has("/workload/ready_order")) return;
  for (std::size_t i = 0; i < file.num_elements("/workload/ready_order"); ++i) {
    const std::string place = fmt::format("/workload/ready_order/{}", i);
    const std::string name = file.text(place);
    const std::string layer = name.substr(0, name.rfind('.'));
    if (std::ranges::find(run.layers, layer, &RunLayer::name) == run.layers.end()) {
      file.fail_at(place, fmt::format("'{}' is a parameter of no layer above", shown(name)));
    }
  }
}

// Of the first row: iterations, over how many epochs, of how many rows.
std::size_t rows_per_epoch(const predict::JsonFile& file, std::size_t batch) {
  if (!file.has("/rows/0/iterations") || !file.has("/rows/0/epoch_seconds/0")) return batch;
  const auto steps = static_cast<double>(file.count("/rows/0/iterations"));
  const auto epochs = static_cast<double>(file.num_elements("/rows/0/epoch_seconds"));
  const double rows = steps * static_cast<double>(batch) / epochs;
  return std::max(batch, static_cast<std::size_t>(std::min(rows, kMaxBytes)));
}

}  // namespace

RunWorkload read_run_workload(const std::string& path) {
  const predict::JsonFile file(path, read_text_file(path, "predict"), "predict");
  require_schema(file);
  if (!file.has("/workload")) {
    file.fail_at("", "the run file has no \"workload\"; write it with lockstep train or compare");
  }
  RunWorkload run;
  run.batch = file.count("/workload/batch");
  if (run.batch < 1) file.fail_at("/workload/batch", "'/workload/batch' must be at least 1");
  run.input_bytes_per_row = file.number("/workload/input_bytes_per_row");
  run.host_seconds_per_op = file.number("/workload/host_seconds_per_op");
  run.optimizer_seconds = file.number("/workload/optimizer_seconds");
  for (std::size_t i = 0; i < file.num_elements("/workload/layers"); ++i) {
    run.layers.push_back(read_layer(file, fmt::format("/workload/layers/{}", i)));
  }
  if (run.layers.empty()) file.fail_at("/workload/layers", "the workload has no layers");
  require_ready_order(file, run);
  run.rows_per_epoch = rows_per_epoch(file, run.batch);
  run.model = file.has("/config/model") ? file.text("/config/model") : "a model";
  run.dataset = file.has("/config/dataset") ? file.text("/config/dataset") : "data";
  const bool is_cuda = file.has("/config/device") && file.text("/config/device") == "cuda";
  run.measured_on =
      is_cuda && file.has("/host/gpus/0/name") ? file.text("/host/gpus/0/name") : "cpu";
  return run;
}

bool is_measured_on(const RunWorkload& run, const predict::DeviceProfile& device) {
  return run.measured_on.find(device.name) != std::string::npos;
}

predict::Workload workload_on(const RunWorkload& run, const predict::DeviceProfile& device,
                              double batch) {
  predict::Workload workload;
  workload.input_bytes = run.input_bytes_per_row * batch;
  const double scale = batch / static_cast<double>(run.batch);
  const bool is_measured = is_measured_on(run, device);
  double bytes = 0;
  for (const RunLayer& layer : run.layers) {
    const auto weight_bytes = static_cast<double>(layer.parameter_bytes);
    const double arithmetic = 2 * batch * weight_bytes / sizeof(float) /
                              (kArithmeticEfficiency * device.flops_per_second);
    const double traffic = weight_bytes / (kTrafficEfficiency * device.memory_bytes_per_second);
    const double product = std::max(arithmetic, traffic) + device.launch_seconds;
    const double num_backward = &layer == run.layers.data() ? 1 : 2;
    workload.layers.push_back(
        {layer.name,
         is_measured ? layer.forward_seconds * scale : product,
         is_measured ? layer.backward_seconds * scale : num_backward * product,
         {layer.parameter_bytes / sizeof(float) * sizeof(float)}});
    bytes += weight_bytes;
  }
  if (is_measured) {
    workload.optimizer_seconds = run.optimizer_seconds;
    return workload;
  }
  workload.optimizer_seconds =
      device.launch_seconds +
      kUpdatePasses * bytes / (kTrafficEfficiency * device.memory_bytes_per_second);
  workload.fixed_seconds = 2 * device.launch_seconds;  // the loss and its gradient
  return workload;
}

nlohmann::ordered_json workload_json(const RunWorkload& run) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  nlohmann::ordered_json order = nlohmann::ordered_json::array();
  for (const RunLayer& layer : run.layers) {
    layers.push_back({{"name", layer.name},
                      {"forward_seconds", layer.forward_seconds},
                      {"backward_seconds", layer.backward_seconds},
                      {"parameter_bytes", layer.parameter_bytes}});
  }
  for (auto layer = run.layers.rbegin(); layer != run.layers.rend(); ++layer) {
    order.push_back(layer->name + ".weight");
  }
  return {{"batch", run.batch},
          {"input_bytes_per_row", run.input_bytes_per_row},
          {"host_seconds_per_op", run.host_seconds_per_op},
          {"optimizer_seconds", run.optimizer_seconds},
          {"layers", layers},
          {"ready_order", order}};
}

}  // namespace lockstep::tools
