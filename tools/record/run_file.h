// The run file: the measurements of train and compare, in the schema "lockstep.run/1". A row is the
// same struct where it is measured, written, read and explained.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/json_file.h"
#include "tools/check/verdict.h"
#include "tools/run/loop.h"

namespace lockstep::tools {

// One row: a mode on a number of devices.
struct RunRow {
  std::string mode;
  std::string kind = "measured";  // or "acted", "predicted"
  std::size_t devices = 1;
  std::size_t physical_devices = 1;
  std::size_t threads_per_device = 1;
  bool is_on_cores = true;    // its devices share the cores of the machine that was measured
  std::size_t batch = 1;      // rows per step over all devices
  double step_seconds = 0;    // rank 0's median step, to which the breakdown adds up
  TrainingResult result;      // of a file: its figures
  std::string topology = {};  // the machine of a row that is acted or predicted
  std::string what_if = {};   // in a predicted row, the change: "batch=64"
  // Against the baseline; absent without one.
  std::optional<double> speedup = {};        // rows trained per second
  std::optional<double> ideal_speedup = {};  // usable cores (GPUs: physical devices)
  std::optional<double> efficiency = {};  // speedup / ideal_speedup; the hardware gives 1 at most
  // True if another process used the devices meanwhile; absent if unknown.
  std::optional<bool> contended = false;

  // These are known where it is measured:
  std::size_t epoch_rows = 1;                     // rows of an epoch
  double max_abs_weight_diff = 0;                 // final weights against one device's
  std::optional<Verdict> verdict = {};            // absent if the row was not judged
  std::optional<double> bubble_formula = {};      // a pipeline's
  std::optional<std::size_t> resumed_after = {};  // the step at which it was interrupted
  bool measured_again = false;  // because the first time it was faster than its hardware explains

  // Up to 5 % above the ideal is noise. A row above that is measured again.
  static constexpr double kMostByNoise = 1.05;

  bool is_single() const { return mode == "single"; }
  double samples_per_second() const { return static_cast<double>(batch) / step_seconds; }
  double median_epoch_seconds() const;  // NaN: a signal came within the first epoch
  bool is_too_efficient() const { return efficiency > kMostByNoise; }
  bool is_noisy() const { return efficiency >= 1.005 && !is_too_efficient(); }

  // Takes the times and other figures of a run of the row.
  void take_result(TrainingResult of_run);
  // Sets the speed-up, the ideal and the efficiency if that row has a single device. num_cores:
  // this machine's. REQUIRES: both rows are trained.
  void compare_with(const RunRow& baseline, std::size_t num_cores);
};

// "dp x4": a row's mode and devices; after a --what-if "dp x4 (bandwidth=2x)".
std::string name_of(const RunRow& row);

// The index of the row that rows[index] is compared with: the last single-device row at or before
// it, or the first row if there is none. rows: RunRows, or pointers to them.
template <typename Rows>
std::size_t baseline_of(const Rows& rows, std::size_t index) {
  while (index > 0 && !std::invoke(&RunRow::is_single, rows[index])) --index;
  return index;
}

// Reads a row of a file that a user gave. Throws Error{Io} that names a field that cannot be true.
RunRow read_row(const JsonFields& fields);

// Hands a row from the ranks that are processes to `compare`: a row of the run file and the
// findings of its checks. Weights, and their comparison, are left out; the weights of the first
// steps have a file beside it. Written atomically.
void write_process_row(const std::string& path, const RunRow& row);

// Takes over what the file has. row: as it was planned. REQUIRES: this program wrote the file.
void read_process_row(const std::string& path, RunRow& row);

// config: flags_json() of run/settings.h. The "workload" is for the caller to add.
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

// Writes JSON to a file, atomically, or to standard output for "-".
void write_json(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace lockstep::tools
