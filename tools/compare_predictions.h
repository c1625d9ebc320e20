// --predict TOPOLOGY of `compare`: predicted rows beside the measured ones.
#pragma once

#include <cstdio>
#include <optional>
#include <vector>

#include "tools/measure_rows.h"
#include "tools/prediction/predicted_rows.h"

namespace lockstep::tools {

// What is to be predicted on which machine, but for the workload; nothing without --predict.
// Throws Error{Usage} for a --predict without a topology, for rows of more devices than that has,
// and as predict::find_topology() does.
std::optional<PredictionTask> read_prediction(const CompareFlags& flags,
                                              const std::vector<PlannedRow>& plan);

// A predicted row beside each planned one, also those of devices that this machine lacks, from the
// workload that was measured. Prints them as rows of the same table, marked "~".
// Throws Error{Usage} for a model that the devices cannot hold.
std::vector<PredictedRow> predict_compared_rows(PredictionTask prediction,
                                                const FileWorkload& workload,
                                                const std::vector<PlannedRow>& plan,
                                                std::FILE* out);

}  // namespace lockstep::tools
