// Whether a row of the table was measured undisturbed.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/nvml/contention.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

// Watches the GPUs behind these devices; nothing for CPU devices.
nvml::ContentionProbe watch(const std::vector<Device>& devices);

// What follows the row in the table: " contended", " contended?" where nobody can tell, or nothing.
std::string contention_mark(const RunRow& row);

// What the marks mean, a line each; empty without one.
std::vector<std::string> contention_notes(const std::vector<RunRow>& rows);

}  // namespace lockstep::tools
