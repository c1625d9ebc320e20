// Measures one training step, layer by layer: the part of the run file that the predictor starts
// from.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/record/run_reader.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// Measures a step on one device with all its threads, layer by layer (layer_recorder.h).
FileWorkload measure_workload(const TrainingTask& task, Device device, double optimizer_seconds);

// The workload as the run file holds it.
nlohmann::ordered_json workload_json(const FileWorkload& step);

}  // namespace lockstep::tools
