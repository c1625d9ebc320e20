// The training loop of one thread: the same for one device, DataParallel, a rank of DDP, and all
// ranks of DDP whose step is one graph.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/training/losses.h"
#include "tools/training/model.h"
#include "tools/verdict/findings.h"

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

// What the loop measured.
struct LoopReport {
  std::vector<double> epoch_seconds;
  double last_epoch_loss = 0;          // mean over all ranks' rows
  std::vector<double> epoch_accuracy;  // TrainingResult
  ThinnedLosses losses;                // of every step, over all ranks' rows
  std::optional<RunFindings> findings;
};

// Trains the models in place. Only rank 0 logs and calls the observer.
// Throws: Error{Numeric} naming step and rank when the loss is not finite; what the engine throws.
LoopReport run_loop(const TrainingTask& task, const LocalModels& models,
                    const TrainingObserver& observer);

}  // namespace lockstep::tools
