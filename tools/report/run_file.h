// The run file: what train and compare measured, in the schema "lockstep.run/1".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/training/task.h"
#include "tools/verdict/verdict.h"

namespace lockstep::tools {

// One row: a mode on a number of devices.
struct RunRow {
  DevicePlacement placement;
  std::size_t threads_per_device = 1;
  TrainingResult result;
  double max_abs_weight_diff = 0;  // of the final weights against the row "single", if there is one
  std::optional<Verdict> verdict;  // where the row was judged
  // Another process used the devices meanwhile; absent when nobody can tell.
  std::optional<bool> contended = false;

  double median_epoch_seconds() const;
  // Wall time of rank 0's median step, which the breakdown adds up to; the mean over all steps
  // where none was recorded.
  double step_seconds() const;
};

// A row beside the single-device row of the same run: speed-up and efficiency (speed-up / devices).
struct Scaling {
  double speedup = 1;
  double efficiency = 1;
};
Scaling scaling(const RunRow& row, const RunRow& single);

// Largest |a - b| over all weights; NaN if any is. REQUIRES: same names and shapes.
double max_abs_difference(const nn::StateDict& a, const nn::StateDict& b);

// Speed-up, efficiency and the weights' difference are against rows[0] if that is the single-device
// row, else null: there is nothing to compare with.
nlohmann::ordered_json make_run_file(const std::vector<std::string>& command,
                                     const TrainingFlags& flags, const TrainingTask& task,
                                     const std::vector<RunRow>& rows,
                                     const nlohmann::ordered_json& workload);

// Writes JSON to a file, atomically, or to standard output for "-".
void write_json(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace lockstep::tools
