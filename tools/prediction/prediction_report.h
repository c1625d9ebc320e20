// What `lockstep predict --table` prints and writes.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "tools/prediction/published_all_reduce.h"
#include "tools/prediction/published_scaling.h"

namespace lockstep::tools {

// A line per predicted row, then per set the mean and the largest error and how often the direction
// (faster or slower than one device) is right; and which machine each hardware
// was taken for. Lines have at most 80 columns.
void print_predictions(const std::vector<ScalingPrediction>& predictions, std::FILE* out);
void print_predictions(const std::vector<AllReducePrediction>& predictions, std::FILE* out);

// The "rows" of lockstep.prediction/1.
nlohmann::ordered_json rows_json(const std::vector<ScalingPrediction>& predictions);
nlohmann::ordered_json rows_json(const std::vector<AllReducePrediction>& predictions);

}  // namespace lockstep::tools
