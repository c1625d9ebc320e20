// The proof behind a table: every way of training computed the same weights.
#pragma once

#include <vector>

#include "tools/report/run_file.h"

namespace lockstep::tools {

// Throws Error{Numeric}, with which the program exits 1, naming the rows whose weights differ from
// those of the single-device run by more than the tolerance, or hold a NaN. No flag provokes it:
// where it appears, the engine or the machine computed something else.
void require_equal_weights(const std::vector<RunRow>& rows);

}  // namespace lockstep::tools
