// One row of the table as a file: how ranks that are processes hand their row to `compare`.
#pragma once

#include <string>

#include "tools/report/run_file.h"

namespace lockstep::tools {

// All of the row but its weights, atomically.
void write_row(const std::string& path, const RunRow& row);

// The reverse; weights, and what compares them, stay empty. Throws Error{Io} when there is no such
// file, or it holds something else.
RunRow read_row(const std::string& path);

}  // namespace lockstep::tools
