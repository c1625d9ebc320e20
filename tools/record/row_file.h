// Rows of the table as files, in which ranks that are processes hand them to `compare`.
#pragma once

#include <string>

#include "tools/record/run_file.h"

namespace lockstep::tools {

// Writes the row without its weights, atomically.
void write_row(const std::string& path, const RunRow& row);

// The reverse of write_row(); weights, and their comparison, stay empty. REQUIRES: this program
// wrote the file.
RunRow read_row(const std::string& path);

}  // namespace lockstep::tools
