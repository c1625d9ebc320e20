// The rows of `compare`: plans them with their baselines, measures and judges them, and adds those
// of --predict.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tools/record/run_file.h"
#include "tools/run/placement.h"
#include "tools/whatif/predicted_rows.h"

namespace lockstep::tools {

struct CompareFlags {
  TrainingFlags training;
  std::vector<std::string> modes = {"dp", "ddp"};
  std::string device_counts = "1,2,4,8";
  bool wide = false;
  bool explain_drift = false;
  bool interrupt = false;
  bool is_predicting = false;  // --predict was said
  std::string predict;         // its topology; empty: that of --act-as
};

// The treatment of a row whose GPUs do not exist here.
enum class MissingDevices { are_an_error, are_predicted };

struct PlannedRow {
  DevicePlacement placement;
  TrainingTask task;
  // From --per-device-batch; absent if every row has the same batch.
  std::optional<std::size_t> rows_per_device;
  bool is_missing = false;  // its devices do not exist, so it can only be predicted
};

// The largest of the counts in "1,2,4,8". Throws Error{Usage}.
std::size_t most_devices(const std::string& device_counts);

// True if the row's devices have more threads than there are cores, so that more of them show
// overhead and no speed-up. False for GPUs, and for devices that act out a machine.
bool shares_cores(const PlannedRow& row, const TrainingFlags& flags);

// One device first, then each mode on each number of devices, all with the batch of --batch; rows
// that share cores come last. With
// --per-device-batch 64,256 such a group for every number: its first row is one device with that
// many rows a step, and n devices have n times as many, so that each device does the same work in
// every row of a group (weak scaling).
// device_counts: "1,2,4,8". Throws Error{Usage}, Error{Io} as make_task does.
std::vector<PlannedRow> plan_rows(const TrainingFlags& flags, const std::vector<std::string>& modes,
                                  const std::string& device_counts, DeviceType type,
                                  MissingDevices missing = MissingDevices::are_an_error);

// The prediction that --predict asks for, without the workload; empty without --predict.
// Throws Error{Usage} for a --predict without a topology, for rows with more devices than the
// topology has, and as predict::find_topology() does.
std::optional<PredictionTask> read_prediction(const CompareFlags& flags,
                                              const std::vector<PlannedRow>& plan);

// Predicts a row for each planned one, also for devices that this machine lacks, from the measured
// workload. Prints them as rows of the same table, marked "~".
// Throws Error{Usage} for a model that the devices cannot hold.
std::vector<PredictedRow> predict_compared_rows(PredictionTask prediction,
                                                const FileWorkload& workload,
                                                const std::vector<PlannedRow>& plan,
                                                std::FILE* out);

// Trains each row, compares it with one device, and prints it in a table as soon as it is known. On
// return the last row that ran in this process is still recorded (engine/trace). After a signal
// (run/interruption.h) it returns the rows that are done, perhaps none.
struct MeasuredRows {
  std::vector<RunRow> rows;
  std::optional<RunRow> resumed;  // --interrupt: the last row once more
};
MeasuredRows measure_rows(const std::vector<PlannedRow>& plan, const CompareFlags& flags,
                          std::FILE* out);

// --explain-drift: trains all rows again in float64, and prints the drift of both precisions.
// Throws Interrupted after a signal.
void explain_drift(const std::vector<PlannedRow>& plan, const TrainingFlags& flags,
                   const std::vector<RunRow>& rows, std::FILE* out);

}  // namespace lockstep::tools
