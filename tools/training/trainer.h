// Trains a task on devices and reports what happened.
#pragma once

#include <functional>
#include <string>

#include "tools/training/task.h"

namespace lockstep::tools {

struct TrainingObserver {
  // After every epoch, on rank 0: epoch from 0, its seconds and mean loss.
  std::function<void(std::size_t epoch, double seconds, double loss)> on_epoch;
  // After every step, on rank 0, in time that counts: number of steps done.
  std::function<void(std::size_t num_done)> on_step;
  // Once for every step, in order, on rank 0, when its loss has arrived: the mean over rank 0's
  // rows.
  std::function<void(std::size_t step, double loss)> on_loss;
  std::string log_path;  // a JSON line per step; empty: none
  // Whether the run is compared with one device's while it goes on (tools/verdict/rank_checks.h);
  // neither times nor breakdown contain it.
  Checks checks = Checks::off;
};

// Deterministic in everything but the times. Recording (engine/trace) may be on; if it is, the
// result has a breakdown and busy fractions.
// Throws: Error{Numeric} naming step and rank when the loss is not finite; what the engine throws.
TrainingResult train(const TrainingTask& task, const DevicePlacement& placement,
                     const TrainingObserver& observer = {});

}  // namespace lockstep::tools
