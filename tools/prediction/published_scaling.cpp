#include "tools/prediction/published_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "simulate/predict/step.h"
#include "tools/prediction/hardware.h"

namespace lockstep::tools {
namespace {

using predict::Strategy;

constexpr double kAssumedBatch = 128;  // over all devices

// What other tables call the strategies.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kOtherNames = {
    {{"parameter_server", "cpu_parameter_server"},
     {"distributed_parameter_server", "cpu_parameter_server"},
     {"replicated", "nccl_replicated"},
     {"dataparallel", "dp"},
     {"distributeddataparallel", "ddp"},
     {"distributed_data_parallel", "ddp"},
     {"horovod", "ddp"},
     {"nccl", "ddp"},
     {"allreduce", "ddp"},
     {"distributed_replicated", "ddp"}}};

Strategy read_strategy(const CsvTable& table, std::size_t row) {
  std::string name;  // however it is written: "Horovod", "NCCL-replicated"
  for (const char c : table.cell(row, "strategy")) {
    const bool is_gap = c == '-' || c == ' ';
    name += is_gap ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const auto& [other, ours] : kOtherNames) {
    if (name == other) name = ours;
  }
  try {
    return predict::parse_strategy(name);
  } catch (const Error& error) {
    table.fail_at(row, std::string(error.message()));
  }
}

// The N of "seconds_per_N_epochs".
std::optional<double> number_of_epochs(const std::string& unit) {
  constexpr std::string_view kBegin = "seconds_per_";
  if (!unit.starts_with(kBegin)) return std::nullopt;
  double count = 0;
  const char* const end = unit.data() + unit.size();
  const auto [stop, error] = std::from_chars(unit.data() + kBegin.size(), end, count);
  const bool is_good = error == std::errc() && count > 0 && std::string_view(stop) == "_epochs";
  return is_good ? std::optional(count) : std::nullopt;
}

void read_unit(const CsvTable& table, PublishedRow& row) {
  const std::string& unit = row.unit_name = table.cell(row.row, "unit");
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, unit) != names.end();
  };
  if (is({"images_per_second", "samples_per_second"})) {
    row.unit = ValueUnit::samples_per_second;
  } else if (is({"seconds_per_iteration", "seconds_per_step"})) {
    row.unit = ValueUnit::seconds_per_step;
  } else if (is({"milliseconds_per_iteration", "milliseconds_per_step"})) {
    row.unit = ValueUnit::seconds_per_step;
    row.unit_seconds = 1e-3;
  } else if (is({"epoch_seconds", "seconds_per_epoch"})) {
    row.unit = ValueUnit::seconds_per_epochs;
  } else if (const std::optional<double> epochs = number_of_epochs(unit)) {
    row.unit = ValueUnit::seconds_per_epochs;
    row.epochs = *epochs;
  } else if (is({"seconds"})) {
    row.unit = ValueUnit::total_seconds;
  } else {
    table.fail_at(row.row, fmt::format("unit '{}' is none of images_per_second, "
                                       "samples_per_second, seconds_per_iteration, "
                                       "milliseconds_per_iteration, epoch_seconds, "
                                       "seconds_per_N_epochs, seconds",
                                       shown(unit)));
  }
}

PublishedRow read_row(const CsvTable& table, std::size_t index) {
  PublishedRow row;
  row.row = index;
  row.set = table.cell(index, "set");
  row.hardware = table.cell(index, "hardware");
  row.interconnect = table.cell(index, "interconnect");
  row.model = table.cell(index, "model");
  row.strategy_name = table.cell(index, "strategy");
  row.strategy = read_strategy(table, index);
  row.batch_per_gpu = table.number(index, "batch_per_gpu");
  row.gpus = table.count(index, "gpus", kMaxPublishedGpus);
  row.value = table.needed_number(index, "value");
  read_unit(table, row);
  return row;
}

const PublishedModel& model_of(const CsvTable& table, const PublishedRow& row,
                               const std::vector<PublishedModel>& models) {
  std::vector<std::string> names;
  for (const PublishedModel& model : models) {
    if (model.name == row.model) return model;
    names.push_back(model.name);
  }
  table.fail_at(row.row, fmt::format("model '{}' is not in --models{}", shown(row.model),
                                     did_you_mean(row.model, names)));
}

// The 1-device row; of several that of the same strategy, or else the one called single.
const PublishedRow& single_row(const CsvTable& table, const PublishedRow& row,
                               const std::vector<PublishedRow>& rows) {
  const PublishedRow* best = nullptr;
  const auto rank = [&](const PublishedRow& other) {
    if (other.strategy_name == row.strategy_name) return 2;
    return other.strategy == Strategy::single ? 1 : 0;
  };
  for (const PublishedRow& other : rows) {
    const bool is_same = other.gpus == 1 && other.set == row.set && other.model == row.model &&
                         other.unit_name == row.unit_name &&
                         without_count(other.hardware) == without_count(row.hardware);
    if (is_same && (!best || rank(other) > rank(*best))) best = &other;
  }
  if (!best) {
    table.fail_at(row.row, fmt::format("set '{}' has no 1-device row of '{}' on '{}' in {}, which "
                                       "the prediction starts from",
                                       shown(row.set), shown(row.model), shown(row.hardware),
                                       shown(row.unit_name)));
  }
  return *best;
}

ScalingPrediction predict_row(const CsvTable& table, const PublishedRow& row,
                              const PublishedRow& single, const PublishedModel& model) {
  const FoundHardware found = find_hardware(row.hardware, row.interconnect, row.gpus);
  if (!found.topology) table.fail_at(row.row, found.problem);
  const predict::Topology* const topology = &*found.topology;
  if (predict::is_of_one_process(row.strategy) && row.gpus > topology->gpus_per_host()) {
    table.fail_at(row.row,
                  fmt::format("{} is one process, whose devices are all in one host: "
                              "'{}' has {} a host",
                              shown(row.strategy_name), topology->name, topology->gpus_per_host()));
  }
  const auto devices = static_cast<double>(row.gpus);
  const double first_batch = single.batch_per_gpu.value_or(kAssumedBatch);
  const double batch = row.batch_per_gpu.value_or(first_batch / devices);
  const double samples = epoch_samples(model);
  double first_step = 0;
  switch (single.unit) {
    case ValueUnit::samples_per_second:
      first_step = first_batch / single.value;
      break;
    case ValueUnit::seconds_per_step:
      first_step = single.value * single.unit_seconds;
      break;
    case ValueUnit::seconds_per_epochs:
      first_step = single.value / single.epochs * first_batch / samples;
      break;
    case ValueUnit::total_seconds:
      first_step = guessed_step_seconds(model, topology->device, first_batch);
  }
  predict::Network network(*topology);
  predict::StepOptions options;
  options.strategy = row.strategy;
  options.num_devices = row.gpus;
  options.gradients = predict::StepOptions::Gradients::copied;  // as PyTorch did then
  const predict::Workload workload = predict::with_rows(
      calibrated_workload(model, topology->device, first_batch, first_step), batch / first_batch);
  const double step = predict::predict_step(network, workload, options).step_seconds;
  ScalingPrediction prediction{row, single.value, 0, topology->name};
  switch (row.unit) {
    case ValueUnit::samples_per_second:
      prediction.predicted = devices * batch / step;
      break;
    case ValueUnit::seconds_per_step:
      prediction.predicted = step / row.unit_seconds;
      break;
    case ValueUnit::seconds_per_epochs:
      prediction.predicted = samples * row.epochs / (devices * batch) * step;
      break;
    case ValueUnit::total_seconds:
      prediction.predicted = single.value * (step / (devices * batch)) / (first_step / first_batch);
  }
  return prediction;
}

// How many times faster than one device.
double speedup(const ScalingPrediction& prediction, double value) {
  const PublishedRow& row = prediction.row;
  const double ratio = value / prediction.single;
  if (row.unit == ValueUnit::samples_per_second) return ratio;
  const double work = row.unit == ValueUnit::seconds_per_step ? static_cast<double>(row.gpus) : 1;
  return work / ratio;
}

}  // namespace

bool ScalingPrediction::is_superlinear() const {
  return speedup(*this, row.value) > static_cast<double>(row.gpus);
}

bool ScalingPrediction::has_right_direction() const {
  return (speedup(*this, row.value) > 1) == (speedup(*this, predicted) > 1);
}

std::vector<ScalingPrediction> predict_scaling(const CsvTable& table,
                                               const std::vector<PublishedModel>& models) {
  table.require_columns({"set", "hardware", "interconnect", "model", "strategy", "batch_per_gpu",
                         "gpus", "value", "unit"});
  std::vector<PublishedRow> rows;
  for (std::size_t i = 0; i < table.num_rows(); ++i) rows.push_back(read_row(table, i));
  std::vector<ScalingPrediction> predictions;
  for (const PublishedRow& row : rows) {
    const PublishedModel& model = model_of(table, row, models);
    if (row.gpus == 1) continue;
    predictions.push_back(predict_row(table, row, single_row(table, row, rows), model));
  }
  return predictions;
}

}  // namespace lockstep::tools
