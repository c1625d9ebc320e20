// One rank of DDP, whether it is a thread or a process.
#pragma once

#include "tools/training/trainer.h"

namespace lockstep::tools {

// Trains this rank's copy of the model on its share of the rows. On rank 0 the result gets epochs,
// loss, weights and test accuracy; the other ranks leave it alone.
void train_ddp_rank(const TrainingTask& task, Device device, comm::Communicator& communicator,
                    const TrainingObserver& observer, TrainingResult& result);

}  // namespace lockstep::tools
