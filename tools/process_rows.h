// Rows of `compare` whose ranks are processes: each is `train --row FOLDER` in a process group of
// its own, which finds its flags in the folder, and leaves its row and its weights there.
#pragma once

#include "tools/report/run_file.h"

namespace lockstep::tools {

// Trains placement.devices.size() ranks with batches of `batch` rows over all of them, and returns
// the row, with its weights. flags: those of `compare`; --trace and --dtype are the row's.
// Throws Error that ends with the last words of the ranks, when they fail: Error{Usage} where they
// exited with 2, else Error{Comm}.
RunRow run_process_row(TrainingFlags flags, const DevicePlacement& placement, std::size_t batch);

}  // namespace lockstep::tools
