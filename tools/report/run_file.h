// The run file: what train and compare measured, in the schema "lockstep.run/1".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/training/task.h"

namespace lockstep::tools {

// One row: a mode on a number of devices.
struct RunRow {
  DevicePlacement placement;
  std::size_t threads_per_device = 1;
  TrainingResult result;
  double max_abs_weight_diff = 0;  // against the row "single"
  double weight_tolerance = 0;

  double median_epoch_seconds() const;
  double step_seconds() const;  // mean over all steps
  bool weights_match() const { return max_abs_weight_diff <= weight_tolerance; }
};

// A row beside the single-device row of the same run: speed-up and efficiency (speed-up / devices).
struct Scaling {
  double speedup = 1;
  double efficiency = 1;
};
Scaling scaling(const RunRow& row, const RunRow& single);

// Largest |a - b| over all weights; NaN if any is. REQUIRES: same names and shapes.
double max_abs_difference(const nn::StateDict& a, const nn::StateDict& b);

// rows[0] is the single-device row; workload is null where it was not measured.
nlohmann::ordered_json make_run_file(const std::vector<std::string>& command,
                                     const TrainingFlags& flags, const TrainingTask& task,
                                     const std::vector<RunRow>& rows,
                                     const nlohmann::ordered_json& workload);

// Writes JSON to a file, atomically, or to standard output for "-".
void write_json(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace lockstep::tools
