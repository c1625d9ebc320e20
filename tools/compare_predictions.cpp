#include "tools/compare_predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

using predict::Strategy;

// In the columns of the measured rows.
std::string line_of(const PredictedRow& row) {
  const auto ideal = static_cast<double>(row.devices);
  return fmt::format(
      "{:<7}{:>7}{:>8}{:>8}{:>9}{:>6}{:>9.0f} %{:>6}{:>10}{:>8}",
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
  require(flags.is_predicting || !flags.strict, ErrorCode::Usage, "--strict",
          "fails where --predict would stand in for devices that are missing; add --predict "
          "TOPOLOGY, or leave it out");
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
  // What is acted out are the engine's own collectives; else a machine of GPUs uses NCCL.
  if (task.slow_motion || training.plan != "auto") prediction.own_plan = task.all_reduce_plan;
  // Without a choice of --ranks, a single device or DataParallel: threads.
  prediction.ranks = predict::parse_rank_kind(training.ranks).value_or(predict::RankKind::threads);
  prediction.run.model = task.model;
  prediction.run.dataset = training.dataset;
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
    if (num_devices == 1 && !is_single) continue;  // what one device takes is predicted already
    prediction.devices = {num_devices};
    prediction.strategies = {planned.placement.mode == Mode::ddp ? Strategy::ddp
                                                                 : Strategy::data_parallel};
    // An epoch that --steps cuts short is as short for both.
    prediction.run.rows_per_epoch =
        std::min(*workload.rows_per_epoch, planned.task.num_steps * planned.task.batch);
    WhatIf same_batch;
    same_batch.batch = planned.task.batch;
    require_possible(prediction, {same_batch});
    rows.push_back(predict_rows(prediction, same_batch).back());
    if (is_single) baseline = rows.size() - 1;
    rows.back().speedup = rows_per_second(rows.back()) / rows_per_second(rows[baseline]);
    fmt::print(out, "{}\n", line_of(rows.back()));
  }
  return rows;
}

}  // namespace lockstep::tools
