// DDP as one CUDA graph: all ranks' steps, with their all-reduces, driven by one thread.
#pragma once

#include "tools/training/rank_loop.h"

namespace lockstep::tools {

// Trains replicas of the model, rank r on devices[r], as Ddp with a thread per rank would: the
// weights are the same, bit by bit. The model is replica 0 and holds the result. Throws: see
// train().
RankReport run_captured_ranks(const TrainingTask& task, const std::shared_ptr<nn::Module>& model,
                              const std::vector<Device>& devices, const TrainingObserver& observer);

}  // namespace lockstep::tools
