// Rows of `compare` whose ranks are processes: each is `train --ranks processes` in a process group
// of its own, which hands its row and its weights back in files.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/command.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

// The flags that were said to `compare`, as words for `train`: all but those that name files it
// writes, --modes, --devices and the batch.
std::vector<std::string> flags_for_train(const std::vector<SaidFlag>& said);

// Trains placement.devices.size() ranks with batches of `batch` rows over all of them, and returns
// the row, with its weights. trace_path: a file
// for this row's timeline; empty: none.
// Throws Error that ends with the last words of the ranks, when they fail: Error{Usage} where they
// exited with 2, else Error{Comm}.
RunRow run_process_row(const std::vector<std::string>& flags, const DevicePlacement& placement,
                       std::size_t batch, const std::string& trace_path);

}  // namespace lockstep::tools
