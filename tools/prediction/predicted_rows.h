// The rows of `lockstep predict --workload` and `--params`: the table of compare for devices that
// are not here.
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"
#include "tools/prediction/net.h"
#include "tools/prediction/run_workload.h"

namespace lockstep::tools {

// A value of --what-if; 0: as it was.
struct WhatIf {
  std::string text = {};  // "bucket_mib=25"; empty: nothing is changed
  double bucket_mib = 0;
  double bandwidth = 0;   // times that of all links
  std::size_t batch = 0;  // over all devices
};

// "bucket_mib=1,25,100", "bandwidth=2x", "batch=64,256": one change a value.
// Throws Error{Usage} that names the word.
std::vector<WhatIf> parse_what_if(const std::string& word);

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
  std::optional<std::array<double, 2>> speedup_band = {};  // of a net
};

struct PredictionTask {
  RunWorkload run;
  std::optional<Net> net = {};  // in place of the run: every device keeps its batch_per_gpu
  predict::Topology topology;
  std::vector<std::size_t> devices = {1, 2, 4, 8};
  std::vector<predict::Strategy> strategies;
  double bucket_mib = 25;
  double first_bucket_mib = 1;
  std::optional<plan::AllReducePlan> own_plan = {};
  predict::RankKind ranks = predict::RankKind::threads;  // of a machine that was measured
  predict::StepOptions::Input input = predict::StepOptions::Input::ready;
  std::size_t accumulate = 1;  // micro-batches that each device's rows are cut into
};

// Rows of a step over all devices: the change's, or the run's, or the net's for each device.
std::size_t batch_of(const PredictionTask& task, const WhatIf& change, std::size_t devices = 1);

// Throws Error{Usage}, before anything is computed: more devices than the topology has, or than a
// step has rows; a strategy of one process over several hosts; weights and gradients that a
// device's memory cannot hold. Where a change gives the batch, the groups that keep the run's own
// need not have a row for every device.
void require_possible(const PredictionTask& task, const std::vector<WhatIf>& changes);

// The numbers of devices for which a step of the change has too few rows: predict_rows leaves them
// out.
std::vector<std::size_t> devices_without_rows(const PredictionTask& task, const WhatIf& change);

// One device, and each strategy on each larger number of devices, all sharing the run's batch (or
// the change's). Speed-up is in samples a second, against one device with the same change.
// The band: the devices', hosts' and links' speed 10 % better, no stragglers, half of the latency
// of collectives and links and half of a kernel's launch, to links 25 %, devices and hosts 10 %
// slower, twice the stragglers and the launch, three times the latency (what 8 A100s take for 32
// KiB over NCCL's own figure). A step that was guessed may also be half or twice as long. The
// band of a net's speed-up: worse links with the shorter step, and better ones with the longer.
// REQUIRES: require_possible().
std::vector<PredictedRow> predict_rows(const PredictionTask& task, const WhatIf& change);

// 80 columns, like compare's; of a net samples a second in place of an epoch. Maybe two lines.
std::string predicted_header(const PredictionTask& task);
std::string predicted_line(const PredictedRow& row);

// A row of lockstep.run/1, of kind "predicted".
nlohmann::ordered_json row_json(const PredictedRow& row, const std::string& topology);

// The row's step as a trace for Perfetto, with the lanes of up to eight devices, which do the same.
void save_predicted_trace(const std::string& path, const PredictedRow& row);

// The "rows" of lockstep.predicted-all-reduce/1 (docs/formats.md).
nlohmann::ordered_json predict_all_reduces(const predict::Topology& topology, std::size_t bytes,
                                           const std::vector<std::size_t>& devices);

// The same as a table.
std::string all_reduce_table(const nlohmann::ordered_json& rows);

// "4 GPUs: 3.8x (band 3.6x to 3.9x), 8 GPUs: ... the samples per second of one GPU, with 64 samples
// a step on each (weak scaling); limited by waiting for the slowest of 8 GPUs (...)".
// rows: the first one of a single device, then a strategy's, with their speedup_band. The limit is
// what takes the largest part of the time that the step on most devices is longer by.
std::string speedup_sentence(std::span<const PredictedRow> rows);

}  // namespace lockstep::tools
