// A run begins with random weights, with those of --init, or at a checkpoint.
#pragma once

#include <string>

#include "tools/run/task.h"

namespace lockstep::tools {

// Reads the weights of --init. REQUIRES: the task's data is loaded.
// Throws Error{Io} for a file that cannot be read, and the error of load_state_dict() or of
// require_same_tokens() for weights of another model or text.
void take_weights(TrainingTask& task, const TrainingFlags& flags);

// Plans the checkpoints, and reads that of --resume. REQUIRES: the task is complete otherwise.
// Throws what find_checkpoint() and require_folder_for_checkpoints() throw, and Error{Usage} for a
// checkpoint that does not fit.
void take_checkpoints(TrainingTask& task, const TrainingFlags& flags);

// Says how many rows a resumed run skips or sees twice because its batch or its rows changed; empty
// if they did not.
std::string describe_moved_place(const TrainingTask& task);

}  // namespace lockstep::tools
