// One device's step on the state and rows of a checked step, and how far the run's is from it.
#pragma once

#include <cstddef>

#include "engine/parallel/strategy.h"
#include "tools/check/planned_rows.h"
#include "tools/check/reference_step.h"
#include "tools/check/report_judge.h"

namespace lockstep::tools {

class OneDevice {
 public:
  // device: the one that computes. limit: of a gradient's error. REQUIRES: task, strategy and rows
  // outlive it.
  OneDevice(const TrainingTask& task, const parallel::Strategy& strategy, Device device,
            PlannedRows& rows, double limit)
      : task_(task), strategy_(strategy), device_(device), rows_(rows), limit_(limit) {}

  double limit() const { return limit_; }

  // mine: rank 0's, whole tensors.
  FromOneDevice compare(std::size_t step, const StepTensors& mine) const;

 private:
  ReferenceGradient step_from(std::size_t step, const KeptTensors& state) const;
  // The first of batch norm's statistics that is not kept by the rule; empty if all are.
  std::string wrong_statistic(std::size_t step, const StepTensors& mine,
                              const ReferenceGradient& after) const;
  void take_errors(const std::vector<TensorError>& errors, FromOneDevice& compared) const;

  const TrainingTask& task_;
  const parallel::Strategy& strategy_;
  const Device device_;
  PlannedRows& rows_;
  const double limit_;
};

}  // namespace lockstep::tools
