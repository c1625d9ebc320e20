// The training loop of one rank: the same for one device, DataParallel and DDP.
#pragma once

#include "tools/training/gradients.h"
#include "tools/training/trainer.h"

namespace lockstep::tools {

// What one rank's loop measured.
struct RankReport {
  std::vector<double> epoch_seconds;
  double last_epoch_loss = 0;  // mean over all ranks' rows
  std::optional<RunFindings> findings;
};

// Trains model.inner in place. Only rank 0 logs and calls the observer.
RankReport run_rank(const TrainingTask& task, const RankModel& model,
                    const TrainingObserver& observer);

}  // namespace lockstep::tools
