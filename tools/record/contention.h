// Says in the table which rows other processes disturbed.
#pragma once

#include <string>
#include <vector>

#include "tools/record/run_file.h"

namespace lockstep::tools {

// In a simulated row, a larger lag means that these cores could not keep up.
inline constexpr double kNotableLag = 0.02;

// The mark after a row's mode in the table: "*" contended, "?" unknown, or nothing.
std::string contention_mark(const RunRow& row);

// One note for each mark in the table that explains it.
std::vector<std::string> contention_notes(const std::vector<RunRow>& rows);

}  // namespace lockstep::tools
