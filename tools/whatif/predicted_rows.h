// The rows of `lockstep predict --workload` and `--params`: compare's table for devices that this
// machine does not have.
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
#include "tools/whatif/net.h"
#include "tools/whatif/record.h"
#include "tools/whatif/run_workload.h"

namespace lockstep::tools {

// One value of --what-if; a member that is 0 leaves its setting unchanged.
struct WhatIf {
  std::string text = {};  // "bucket_mib=25"; empty: no change
  double bucket_mib = 0;
  double bandwidth = 0;   // factor for all links, and for the way through host memory
  std::size_t batch = 0;  // over all devices
  std::optional<predict::PeerAccess> peer_access = {};
  std::size_t gradient_size = 0;   // bytes of a gradient on its way: 4, or 2 for bf16
  std::size_t parameter_size = 0;  // of a parameter that ZeRO gathers; 0: as its gradient
};

// Parses "bucket_mib=1,25,100", "bandwidth=2x", "batch=64,256", "peer_access=on", "gradients=bf16"
// or "parameters=bf16": one change per value.
// Throws Error{Usage} that names the word.
std::vector<WhatIf> parse_what_if(const std::string& word);

struct PredictedRow {
  predict::Strategy strategy = predict::Strategy::single;
  std::size_t devices = 1;
  std::size_t batch = 1;  // over all devices
  std::string what_if = {};
  bool shows_samples = false;  // per second, in the place of an epoch
  double epoch_seconds = 0;
  double speedup = 1;
  predict::PredictedStep step;
  std::optional<Record> record = {};  // of several devices; empty: no published row is like it
  // From the record; a step on one device has none if it was given or measured. Empty: unverified.
  std::optional<std::array<double, 2>> step_band = {};
  std::optional<std::array<double, 2>> speedup_band = {};  // only for a net
};

// All that a prediction starts from, whoever fills it: `lockstep predict` from its flags, and what
// reads another program's trace puts its step into `run` (layers with their times, rows of a step)
// or `net` (parameters, step_seconds), and leaves the rest to the flags. predict_rows(),
// StepMemory and advice.h take nothing else.
struct PredictionTask {
  RunWorkload run;
  std::optional<Net> net = {};  // instead of the run; every device keeps its batch_per_gpu
  predict::Topology topology;
  std::vector<std::size_t> devices = {1, 2, 4, 8};
  std::vector<predict::Strategy> strategies;
  double bucket_mib = 25;
  double first_bucket_mib = 1;
  std::optional<plan::AllReducePlan> own_plan = {};
  predict::StepOptions::Overlap overlap = predict::StepOptions::Overlap::on;
  std::size_t accumulate = 1;  // micro-batches that each device's rows are cut into
  predict::StepOptions::Reduced reduced = predict::StepOptions::Reduced::with_each;
  // For a pipeline; without a number of micro-batches, four times the stages.
  plan::PipelineSchedule schedule = plan::PipelineSchedule::gpipe;
  std::optional<std::size_t> micro_batches = {};
  std::size_t chunks = 1;
};

// Rows per step over all devices: from the change, else from the run, else from the net for each
// device.
std::size_t batch_of(const PredictionTask& task, const WhatIf& change, std::size_t devices = 1);

// False if a strategy on so many devices would span hosts, cut a pipeline into more stages than
// layers, or leave devices without rows.
bool is_possible(const PredictionTask& task, predict::Strategy strategy, std::size_t devices);

// Throws Error{Usage} before anything is computed if there are more devices than rows in a step, if
// a strategy of one process would span several hosts, or if weights and gradients exceed a device's
// memory. If a change sets the batch, the groups with the run's own batch need not have a row for
// every device. REQUIRES: the topology has the devices.
void require_possible(const PredictionTask& task, const std::vector<WhatIf>& changes);

// Predicts one device, and each strategy on each larger number of devices that have a row each, all
// with the run's batch (or the change's). Speed-up is in samples per second, against one device
// with the same change. The band is that of the row's class of machine (record.h): nine of ten
// published rows like it lie inside. Kernels that are priced by a data sheet widen it, and a
// guessed step may take half or twice as long; a speed-up then belongs to such a step.
// REQUIRES: require_possible().
std::vector<PredictedRow> predict_rows(const PredictionTask& task, const WhatIf& change);

// 80 columns, as in compare; for a net, samples per second instead of an epoch. May be two lines.
std::string predicted_header(const PredictionTask& task);
std::string predicted_line(const PredictedRow& row);
// The row's first 20 columns, mode and devices; a mode with a long name gets a line of its own.
std::string name_columns(const PredictedRow& row);

// A line for each class of machine among the rows, with its record, or that it is not verified.
std::vector<std::string> record_notes(const std::vector<PredictedRow>& rows);

// A row of lockstep.run/1, of kind "predicted".
nlohmann::ordered_json row_json(const PredictedRow& row, const predict::Topology& topology);

// Saves the row's step as a trace for Perfetto, with the lanes of at most eight devices, which all
// do the same.
void save_predicted_trace(const std::string& path, const PredictedRow& row);

// The "rows" of lockstep.predicted-all-reduce/1 (docs/formats.md).
nlohmann::ordered_json predict_all_reduces(const predict::Topology& topology, std::size_t bytes,
                                           const std::vector<std::size_t>& devices);

// The rows of predict_all_reduces() as a table.
std::string all_reduce_table(const nlohmann::ordered_json& rows);

// "4 GPUs: 3.8x (band 3.6x to 3.9x), 8 GPUs: ... the samples per second of one GPU, with 64 samples
// a step on each (weak scaling); limited by waiting for the slowest of 8 GPUs (...)".
// rows: first a single device, then one strategy's rows. The limit is the largest part of the time
// that the step on most devices takes longer than its share of one device's.
std::string speedup_sentence(std::span<const PredictedRow> rows);

}  // namespace lockstep::tools
