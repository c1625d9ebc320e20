// The memory of steps of this engine's own models: they are run here, on the CPU, by the code that
// trains them, and their tensors' peak is read.
//
// All ranks, replicas or stages run, up to so many that more of them follow.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "engine/nn/models.h"
#include "tools/whatif/predicted_rows.h"

namespace lockstep::tools {

// The steps of one device among several.
struct OwnStep {
  predict::Strategy strategy = predict::Strategy::single;
  std::size_t devices = 1;
  std::size_t rows = 1;  // for each device; they may be cut into micro-batches

  auto operator<=>(const OwnStep&) const = default;
};

class OwnMemory {
 public:
  // Empty if the task's model is not one of this engine's, or cannot be made without its data.
  static std::optional<OwnMemory> of(const PredictionTask& task);

  const std::string& model() const { return task_.model; }
  double parameter_bytes() const { return task_.parameter_bytes; }
  bool is_on_cpu() const { return task_.device == DeviceType::cpu; }

  // Bytes that the device needs that needs most: its tensors, and the batches that wait ahead of
  // the step. Steps whose tensors take much are not run, but extended from smaller ones, and so are
  // those of many devices.
  double peak(const OwnStep& step);

 private:
  struct Subject {
    std::string model;
    nn::ModelData data;
    std::size_t accumulate = 1;
    plan::PipelineSchedule schedule = plan::PipelineSchedule::gpipe;
    std::optional<std::size_t> micro_batches = {};
    DeviceType device = DeviceType::cuda;  // whose batches wait
    double parameter_bytes = 0;
  };
  explicit OwnMemory(Subject subject) : task_(std::move(subject)) {}

  double extended_over_devices(const OwnStep& step);
  double extended_over_rows(OwnStep step);
  double measured(const OwnStep& step);
  double batches_ahead(std::size_t rows) const;

  Subject task_;
  std::map<OwnStep, double> measured_;
};

}  // namespace lockstep::tools
