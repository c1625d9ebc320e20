#include "tools/commands/compare_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/flags/numbers.h"
#include "tools/run/batch_norm_rows.h"
#include "tools/run/placement.h"
#include "tools/run/slow_motion.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

std::vector<std::size_t> parse_device_counts(const std::string& text) {
  const std::vector<std::size_t> counts = parse_list("--devices", text);
  for (const std::size_t count : counts) {
    require(count >= 1 && count <= 4096, ErrorCode::Usage, "--devices",
            "expected counts such as 1,2,4,8, found {}", count);
  }
  return counts;
}

bool are_missing(std::size_t count, DeviceType type) {
  return type == DeviceType::cuda && count > static_cast<std::size_t>(runtime::num_devices(type));
}

std::vector<DevicePlacement> list_placements(TrainingFlags flags,
                                             const std::vector<std::string>& modes,
                                             const std::vector<std::size_t>& device_counts,
                                             DeviceType type, MissingDevices missing) {
  std::vector<DevicePlacement> placements{{Mode::single, {Device{type, 0}}}};
  for (const std::string& name : modes) {
    const Mode mode = parse_mode(name);
    for (const std::size_t count : device_counts) {
      flags.devices = static_cast<int>(count);
      if (missing == MissingDevices::are_predicted && are_missing(count, type)) {
        placements.push_back({mode, {}, std::nullopt});
        for (std::size_t i = 0; i < count; ++i) {
          placements.back().devices.push_back({type, static_cast<int>(i)});
        }
        continue;
      }
      placements.push_back({mode, resolve_devices(flags, type)});
      require_simulated_devices(flags, placements.back().devices);
    }
  }
  return placements;
}

std::vector<std::optional<std::size_t>> list_groups(const TrainingFlags& flags) {
  if (flags.per_device_batch.empty()) return {std::nullopt};
  std::vector<std::optional<std::size_t>> groups;
  for (const std::size_t rows : parse_list("--per-device-batch", flags.per_device_batch)) {
    require(rows >= 1, ErrorCode::Usage, "--per-device-batch", "must be at least 1, found 0");
    groups.emplace_back(rows);
  }
  return groups;
}

}  // namespace

std::size_t most_devices(const std::string& device_counts) {
  return std::ranges::max(parse_device_counts(device_counts));
}

bool shares_cores(const PlannedRow& row, const TrainingFlags& flags) {
  const std::vector<Device>& devices = row.placement.devices;
  if (devices[0].type != DeviceType::cpu || row.task.slow_motion) return false;
  const std::size_t threads = threads_per_device(flags, devices.size());
  return devices.size() * threads > runtime::num_cores();
}

std::vector<PlannedRow> plan_rows(const TrainingFlags& flags, const std::vector<std::string>& modes,
                                  const std::string& device_counts, DeviceType type,
                                  MissingDevices missing) {
  const std::vector<std::size_t> counts = parse_device_counts(device_counts);
  const std::vector<DevicePlacement> placements =
      list_placements(flags, modes, counts, type, missing);
  const std::vector<std::optional<std::size_t>> groups = list_groups(flags);
  TrainingFlags of_all = flags;
  for (const DevicePlacement& placement : placements) {
    require(!shard_depth(placement.mode) || (!flags.bitwise && !flags.graph), ErrorCode::Usage,
            "--modes", "{} reduces gradients layer by layer, each rank for itself; leave out {}",
            to_string(placement.mode), flags.bitwise ? "--bitwise" : "--graph");
  }
  of_all.per_device_batch.clear();
  of_all.accumulate = 1;  // with_batch() applies it, once the row's batch is known
  if (flags.bitwise) {
    for (const std::size_t count : counts) read_task(of_all, count);
  }
  const TrainingTask task = make_task(of_all, *std::max_element(counts.begin(), counts.end()));
  std::vector<DevicePlacement> here;  // those that train
  std::ranges::copy_if(placements, std::back_inserter(here), [&](const DevicePlacement& placement) {
    return !are_missing(placement.devices.size(), type);
  });
  if (flags.per_device_batch.empty()) require_rows_for_batch_norm(task, flags, here);
  std::vector<PlannedRow> rows;
  for (const std::optional<std::size_t> rows_per_device : groups) {
    const auto first = static_cast<std::ptrdiff_t>(rows.size());
    for (const DevicePlacement& placement : placements) {
      const std::size_t num_devices = placement.devices.size();
      const std::size_t batch = rows_per_device ? *rows_per_device * num_devices : task.batch;
      require(!rows_per_device || batch <= task.data->train.num_rows(), ErrorCode::Usage,
              "--per-device-batch", "{} rows on each of {} devices are more than the {} of {}",
              *rows_per_device, num_devices, task.data->train.num_rows(), flags.dataset);
      rows.push_back({placement, fitted_task(with_batch(task, flags, batch), flags, placement),
                      rows_per_device, are_missing(num_devices, type)});
      if (rows_per_device && !rows.back().is_missing) {
        require_rows_for_batch_norm(rows.back().task, flags, {&placement, 1});
      }
    }
    std::stable_partition(rows.begin() + first, rows.end(),
                          [&](const PlannedRow& row) { return !shares_cores(row, flags); });
  }
  return rows;
}

namespace {

using predict::Strategy;

// A line in the columns of the measured rows.
std::string line_of(const PredictedRow& row) {
  const auto ideal = static_cast<double>(row.devices);
  return fmt::format(
      "{:<9}{:>5}{:>8}{:>8}{:>9}{:>6}{:>9.0f} %{:>6}{:>10}{:>8}",
      fmt::format("~{}", predict::to_string(row.strategy)), row.devices,
      trace::format_seconds(row.epoch_seconds), trace::format_seconds(row.step.step_seconds),
      format_factor(row.speedup), format_factor(ideal), 100 * row.speedup / ideal,
      fmt::format("{:.0f} %", 100 * row.step.busy_fraction),
      format_bytes(static_cast<std::size_t>(std::llround(row.step.comm_bytes_per_device))), "-");
}

double rows_per_second(const PredictedRow& row) {
  return static_cast<double>(row.batch) / row.step.step_seconds;
}

}  // namespace

std::optional<PredictionTask> read_prediction(const CompareFlags& flags,
                                              const std::vector<PlannedRow>& plan) {
  if (!flags.is_predicting) return std::nullopt;
  const TrainingFlags& training = flags.training;
  const std::string& name = flags.predict.empty() ? training.act_as : flags.predict;
  require(!name.empty(), ErrorCode::Usage, "--predict",
          "name a topology, such as --predict dgx1-v100; with --act-as it may be left out");
  const TrainingTask& task = plan[0].task;
  PredictionTask prediction;
  prediction.topology = predict::find_topology(name);
  for (const PlannedRow& row : plan) {
    const std::size_t available = row.placement.mode == Mode::data_parallel
                                      ? prediction.topology.gpus_per_host()
                                      : prediction.topology.gpus.size();
    require(row.placement.devices.size() <= available, ErrorCode::Usage, "--predict",
            "'{}' has {} devices{}, {} were asked for; a cluster is NAME*HOSTS@100gbe",
            prediction.topology.name, available,
            row.placement.mode == Mode::data_parallel ? " in a host, where dp stays" : "",
            row.placement.devices.size());
  }
  prediction.bucket_mib = training.bucket_mib;
  prediction.first_bucket_mib = training.first_bucket_mib;
  // Slow motion acts out the engine's own collectives; else a machine of GPUs uses NCCL.
  if (task.slow_motion || training.plan != "auto") prediction.own_plan = task.all_reduce_plan;
  prediction.run.model = task.model;
  prediction.run.dataset = training.dataset;
  prediction.run.shares_statistics = training.sync_batch_norm;
  return prediction;
}

std::vector<PredictedRow> predict_compared_rows(PredictionTask prediction,
                                                const FileWorkload& workload,
                                                const std::vector<PlannedRow>& plan,
                                                std::FILE* out) {
  prediction.run.step = workload;
  std::vector<PredictedRow> rows;
  std::size_t baseline = 0;
  for (const PlannedRow& planned : plan) {
    const bool is_single = planned.placement.mode == Mode::single;
    const std::size_t num_devices = planned.placement.devices.size();
    if (num_devices == 1 && !is_single) continue;  // a single device is predicted already
    prediction.devices = {num_devices};
    prediction.strategies = {is_single
                                 ? Strategy::data_parallel
                                 : predict::parse_strategy(to_string(planned.placement.mode))};
    if (planned.task.pipeline) {
      prediction.schedule = planned.task.pipeline->schedule;
      prediction.micro_batches = planned.task.pipeline->num_micro_batches;
      prediction.chunks = planned.task.pipeline->num_chunks;
    }
    // --steps cuts the predicted epoch as short as the measured one.
    prediction.run.rows_per_epoch =
        std::min(workload.rows_per_epoch, planned.task.num_steps * planned.task.batch);
    WhatIf same_batch;
    same_batch.batch = planned.task.rows_of_full_batch();
    require_possible(prediction, {same_batch});
    rows.push_back(predict_rows(prediction, same_batch).back());
    if (is_single) baseline = rows.size() - 1;
    rows.back().speedup = rows_per_second(rows.back()) / rows_per_second(rows[baseline]);
    fmt::print(out, "{}\n", line_of(rows.back()));
  }
  return rows;
}

}  // namespace lockstep::tools
