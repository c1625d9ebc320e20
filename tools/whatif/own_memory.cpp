#include "tools/whatif/own_memory.h"

#include <algorithm>
#include <vector>

#include "engine/core/error.h"
#include "engine/data/data_loader.h"
#include "tools/run/step_memory.h"
#include "tools/run/task.h"

namespace lockstep::tools {
namespace {

using predict::Strategy;

// Steps are run up to here, in bytes that grow with the rows, and devices that share the model.
constexpr double kMostMeasuredBytes = 128.0 * (1 << 20);
constexpr std::size_t kRowsGrowth = 4;
constexpr std::size_t kMostSharers = 4;

Mode mode_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::data_parallel:
      return Mode::data_parallel;
    case Strategy::ddp:
    case Strategy::hierarchical:
      return Mode::ddp;
    case Strategy::zero1:
      return Mode::zero1;
    case Strategy::zero2:
      return Mode::zero2;
    case Strategy::zero3:
      return Mode::zero3;
    case Strategy::pipeline:
      return Mode::pipeline;
    default:
      return Mode::single;  // their gradients leave the device
  }
}

// Zeros in the place of data.
std::shared_ptr<const datasets::Dataset> blank_rows(const nn::ModelData& data, std::size_t count) {
  auto rows = std::make_shared<datasets::Dataset>();
  rows->train.name = "zeros";
  rows->train.num_features = data.row.num_elements();
  rows->train.num_classes = data.num_classes;
  rows->train.row_shape = data.row;
  rows->train.features.resize(count * rows->train.num_features);
  rows->train.labels.resize(count);
  return rows;
}

}  // namespace

std::optional<OwnMemory> OwnMemory::of(const PredictionTask& task) {
  const std::string name = task.net ? task.net->name : task.run.model;
  if (task.net && !name.starts_with("mlp:")) return {};
  Subject subject{name, {}, task.accumulate, task.schedule, task.micro_batches};
  try {
    subject.data = rows_for(name, task.net ? "" : task.run.dataset);
  } catch (const Error&) {  // tokens, or a file's own data
    return {};
  }
  const bool is_cpu = std::ranges::any_of(task.topology.links, [](const predict::Link& link) {
    return link.kind == predict::LinkKind::memory;
  });
  if (is_cpu) subject.device = DeviceType::cpu;
  const auto model = nn::make_model(name, subject.data, 0, DType::float32, Device{});
  for (const Variable& parameter : model->parameters()) {
    subject.parameter_bytes += static_cast<double>(parameter.value().num_bytes());
  }
  return OwnMemory(std::move(subject));
}

double OwnMemory::peak(const OwnStep& step) {
  const bool is_on_first = step.strategy == Strategy::data_parallel;
  const bool is_whole = is_on_first || step.strategy == Strategy::pipeline;
  return extended_over_devices(step) + batches_ahead(step.rows * (is_whole ? step.devices : 1));
}

double OwnMemory::extended_over_devices(const OwnStep& step) {
  const auto with = [&](std::size_t devices) {
    return extended_over_rows({step.strategy, devices, step.rows});
  };
  const Mode mode = mode_of(step.strategy);
  if (step.devices == 1 || mode == Mode::single)
    return extended_over_rows({Strategy::single, 1, step.rows});
  if (mode == Mode::ddp) return extended_over_rows({Strategy::ddp, 2, step.rows});
  const auto devices = static_cast<double>(step.devices);
  // Each replica more adds the same to the first device.
  if (mode == Mode::data_parallel && step.devices > 3) {
    return with(3) + (devices - 3) * (with(3) - with(2));
  }
  // Each of n ranks has 1/n of the shared memory.
  if (mode != Mode::data_parallel && mode != Mode::pipeline && step.devices > kMostSharers) {
    constexpr auto kMost = static_cast<double>(kMostSharers);
    const double shared = (with(kMostSharers / 2) - with(kMostSharers)) * kMost;
    return with(kMostSharers) - shared * (1 / kMost - 1 / devices);
  }
  return with(step.devices);
}

double OwnMemory::extended_over_rows(OwnStep step) {
  const std::size_t rows = std::max(step.rows, 2 * task_.accumulate);  // batch norm needs two
  const auto with = [&](std::size_t count) {
    step.rows = count;
    return measured(step);
  };
  std::size_t most = std::min(rows, 2 * task_.accumulate);
  const double first = with(most);
  while (most < rows && (with(most) - first) * kRowsGrowth < kMostMeasuredBytes) {
    most = std::min(rows, kRowsGrowth * most);
  }
  if (most == rows) return with(rows);
  const std::size_t half = most / 2;
  const double row = (with(most) - with(half)) / static_cast<double>(most - half);
  return with(most) + row * static_cast<double>(rows - most);
}

double OwnMemory::measured(const OwnStep& step) {
  const auto [found, is_new] = measured_.try_emplace(step, 0);
  if (!is_new) return found->second;
  const Mode mode = mode_of(step.strategy);
  TrainingTask task;
  task.model = task_.model;
  task.batch = step.rows * step.devices;
  task.data = blank_rows(task_.data, task.batch);
  task.accumulate = mode == Mode::pipeline ? 1 : task_.accumulate;
  task.bucket_byte_limits = {std::size_t{1} << 20, std::size_t{25} << 20};
  TrainingFlags flags;
  flags.pipeline_schedule = plan::to_string(task_.schedule);
  if (task_.micro_batches) flags.micro_batches = static_cast<int>(*task_.micro_batches);
  DevicePlacement placement{mode};
  for (std::size_t i = 0; i < step.devices; ++i) {
    placement.devices.push_back({DeviceType::cpu, static_cast<int>(i)});
  }
  task = fitted_task(std::move(task), flags, placement);
  const std::vector<std::size_t> bytes = step_bytes(task, placement);
  found->second = static_cast<double>(std::ranges::max(bytes));
  return found->second;
}

double OwnMemory::batches_ahead(std::size_t rows) const {
  return static_cast<double>(
      data::DataLoader::bytes_ahead(blank_rows(task_.data, 0)->train, rows, task_.device));
}

}  // namespace lockstep::tools
