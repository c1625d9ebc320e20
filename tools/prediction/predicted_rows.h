// The rows of `lockstep predict --workload`: the table of compare for devices that nobody has here.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "simulate/predict/step.h"
#include "tools/prediction/run_workload.h"
#include "tools/prediction/what_if.h"

namespace lockstep::tools {

struct PredictedRow {
  predict::Strategy strategy = predict::Strategy::single;
  std::size_t devices = 1;
  std::size_t batch = 1;  // over all devices
  std::string what_if = {};
  double epoch_seconds = 0;
  double speedup = 1;
  predict::PredictedStep step;
  // With better and with worse conditions than the constants say (predict_rows).
  double lowest_step_seconds = 0;
  double highest_step_seconds = 0;
};

struct PredictionTask {
  RunWorkload run;
  predict::Topology topology;
  std::vector<std::size_t> devices = {1, 2, 4, 8};
  std::vector<predict::Strategy> strategies;
  double bucket_mib = 25;
  double first_bucket_mib = 1;
  std::optional<plan::AllReducePlan> own_plan = {};
  predict::RankKind ranks = predict::RankKind::threads;  // of a machine that was measured
  predict::StepOptions::Input input = predict::StepOptions::Input::ready;
};

// Rows of a step: the change's, or the run's.
std::size_t batch_of(const PredictionTask& task, const WhatIf& change);

// Throws Error{Usage}, before anything is computed: more devices than the topology has, or than a
// step has rows; a strategy of one process over several hosts; weights and gradients that a
// device's memory cannot hold. Where a change gives the batch, the groups that keep the run's own
// need not have a row for every device.
void require_possible(const PredictionTask& task, const std::vector<WhatIf>& changes);

// The numbers of devices for which a step of the change has too few rows: predict_rows leaves them
// out.
std::vector<std::size_t> devices_without_rows(const PredictionTask& task, const WhatIf& change);

// One device, and each strategy on each larger number of devices, all sharing the run's batch (or
// the change's). Speed-up is against one device with the same change.
// The band: the devices', hosts' and links' speed 10 % better, no stragglers, half of the latency
// of collectives and links and half of a kernel's launch, to links 25 %, devices and hosts 10 %
// slower, twice the stragglers and the launch, three times the latency (what 8 A100s take for 32
// KiB over NCCL's own figure). REQUIRES: require_possible().
std::vector<PredictedRow> predict_rows(const PredictionTask& task, const WhatIf& change);

std::string predicted_header();
std::string predicted_line(const PredictedRow& row);  // 80 columns, like compare's; maybe two lines

// A row of lockstep.run/1, of kind "predicted".
nlohmann::ordered_json row_json(const PredictedRow& row, const std::string& topology);

// The row's step as a trace for Perfetto, with the lanes of up to eight devices, which do the same.
void save_predicted_trace(const std::string& path, const PredictedRow& row);

}  // namespace lockstep::tools
