// The run file: the measurements of train and compare, in the schema "lockstep.run/1".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/check/verdict.h"
#include "tools/run/loop.h"

namespace lockstep::tools {

// One row: a mode on a number of devices.
struct RunRow {
  DevicePlacement placement;
  std::size_t threads_per_device = 1;
  TrainingResult result;
  std::size_t batch = 1;                 // rows per step over all devices
  std::size_t epoch_rows = 1;            // rows of an epoch
  double max_abs_weight_diff = 0;        // final weights against one device's
  std::optional<Verdict> verdict;        // absent if the row was not judged
  std::optional<double> bubble_formula;  // a pipeline's
  // True if another process used the devices meanwhile; absent if unknown.
  std::optional<bool> contended = false;
  std::optional<std::size_t> resumed_after = std::nullopt;  // the step at which it was interrupted
  bool measured_again = false;  // because the first time it was faster than its hardware explains

  double median_epoch_seconds() const;  // NaN: a signal came within the first epoch
  // Wall time of rank 0's median step, to which the breakdown adds up; the mean over all steps if
  // none was recorded.
  double step_seconds() const;
};

struct Scaling {
  double speedup = 1;     // rows trained per second, against the baseline's
  double ideal = 1;       // usable cores (GPUs: physical devices), against the baseline's
  double efficiency = 1;  // speedup / ideal; 1 is the most that the hardware could give

  // Up to 5 % above the ideal is noise. A row above that is measured again.
  static constexpr double kMostByNoise = 1.05;
  bool is_too_efficient() const { return efficiency > kMostByNoise; }
  bool is_noisy() const { return efficiency >= 1.005 && !is_too_efficient(); }
};

// True if the row's devices share this machine's cores: CPU devices that do not act out another
// machine (run/slow_motion.h).
bool is_on_cores(const RunRow& row);

// num_cores: this machine's. REQUIRES: both rows are trained.
Scaling scaling(const RunRow& row, const RunRow& baseline, std::size_t num_cores);

// The row that rows[index] is compared with: the last single-device row at or before it, or rows[0]
// if there is none.
const RunRow& baseline_of(const std::vector<RunRow>& rows, std::size_t index);

// config: flags_json() of run/settings.h. Speed-up, ideal, efficiency and the difference of weights
// are against the row's baseline if rows[0] is a single-device row; else they are null, because
// there is nothing to compare with. The "workload" is for the caller to add.
nlohmann::ordered_json make_run_file(const std::vector<std::string>& command,
                                     nlohmann::ordered_json config,
                                     const std::vector<RunRow>& rows);

// A row that was interrupted, for "resumed". REQUIRES: it was, and was judged.
nlohmann::ordered_json resumed_json(const RunRow& row);

// Marks the file of a run that a signal has ended early. unit: "steps" or "rows".
void mark_interrupted(nlohmann::ordered_json& json, int signal, std::string_view unit,
                      std::size_t num_done, std::size_t num_planned);

// Writes the file of a benchmark whose rows so far are in it, and marks it if a signal (0: none)
// came before they were all done. Without a row, and without a path, it writes nothing. Returns the
// exit code, and after a signal says what was written.
int end_bench(const std::string& path, nlohmann::ordered_json& json, int signal,
              std::size_t num_planned);

// Hands a row from the ranks that are processes to `compare`: a row of the run file and the
// findings of its checks. Weights, and their comparison, are left out; the weights of the first
// steps have a file beside it. Written atomically.
void write_row(const std::string& path, const RunRow& row);

// Takes over what the file has. row: as it was planned. REQUIRES: this program wrote the file.
void read_row(const std::string& path, RunRow& row);

// Writes JSON to a file, atomically, or to standard output for "-".
void write_json(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace lockstep::tools
