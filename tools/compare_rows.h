// Which rows `compare` measures, and against which baseline.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/training/placement.h"

namespace lockstep::tools {

// What becomes of a row whose GPUs are not there.
enum class MissingDevices { are_an_error, are_predicted };

struct PlannedRow {
  DevicePlacement placement;
  TrainingTask task;
  // Of --per-device-batch; absent where every row has the same batch.
  std::optional<std::size_t> rows_per_device;
  bool is_missing = false;  // its devices are, so it can only be predicted
};

// One device first, then each mode on each number of devices, all with the batch of --batch. With
// --per-device-batch 64,256 such a group for every number: its first row is one device with that
// many rows a step, and n devices have n times as many, so that each device does the same work in
// every row of a group (weak scaling).
// modes: "dp,ddp"; device_counts: "1,2,4,8". Throws Error{Usage}, Error{Io} as make_task does.
std::vector<PlannedRow> plan_rows(const TrainingFlags& flags, const std::string& modes,
                                  const std::string& device_counts, DeviceType type,
                                  MissingDevices missing = MissingDevices::are_an_error);

}  // namespace lockstep::tools
