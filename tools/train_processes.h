// lockstep train where ranks are processes: one that starts them, and one that is one of them.
#pragma once

#include "tools/cli/training_flags.h"
#include "tools/commands.h"
#include "tools/ranks/rank_flags.h"

namespace lockstep::tools {

// Looks at the flags, then starts --devices ranks. Returns the exit code.
int start_training_ranks(const TrainingFlags& flags, const CommandLine& command);

// Trains as a rank. Rank 0 prints and writes what `train` does with threads.
void train_as_rank(const TrainingFlags& flags, const launch::RankEnvironment& environment,
                   const CommandLine& command);

}  // namespace lockstep::tools
