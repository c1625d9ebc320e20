// A published scaling table: predicted from its 1-device rows alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulate/predict/step.h"
#include "tools/prediction/published_model.h"

namespace lockstep::tools {

// What a row's value counts.
enum class ValueUnit { samples_per_second, seconds_per_step, seconds_per_epochs, total_seconds };

struct PublishedRow {
  std::string set, hardware, interconnect, model, strategy_name, unit_name;
  predict::Strategy strategy = predict::Strategy::single;
  std::optional<double> batch_per_gpu;
  std::size_t gpus = 1;
  double value = 0;
  ValueUnit unit = ValueUnit::samples_per_second;
  double epochs = 1;        // of seconds_per_epochs
  double unit_seconds = 1;  // of a unit of time: 1e-3 for milliseconds
  std::size_t row = 0;      // in the table
};

struct ScalingPrediction {
  PublishedRow row;
  double single = 0;  // the 1-device row's value
  double predicted = 0;
  std::string topology;

  double error() const { return (predicted - row.value) / row.value; }
  // More than `gpus` times the single device's speed: no model of a step explains that.
  bool is_superlinear() const;
  // Whether it says "faster than one device", or "slower", as the measurement does.
  bool has_right_direction() const;
};

// Every row with several devices. Its unit: samples (images) per second, seconds or milliseconds
// per iteration (step), seconds per epoch or per N epochs, or seconds of some whole work.
// A table without a batch is taken to share 128 samples a step among its devices.
// Throws Error{Io} that names file and line: an unknown model, strategy, unit or hardware, a
// number that is none, a row whose set, hardware and model have no 1-device row.
std::vector<ScalingPrediction> predict_scaling(const CsvTable& table,
                                               const std::vector<PublishedModel>& models);

}  // namespace lockstep::tools
