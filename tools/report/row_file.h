// One row of the table as a file: how ranks that are processes hand their row to `compare`.
#pragma once

#include <string>

#include "tools/report/run_file.h"

namespace lockstep::tools {

// The folder of a row, and what lies there for it.
struct RowFolder {
  std::string path;
  std::string flags() const { return path + "/flags.json"; }  // of its training (flags_json.h)
  std::string row() const { return path + "/row.json"; }
  std::string weights() const { return path + "/weights.safetensors"; }
};

// All of the row but its weights, atomically.
void write_row(const std::string& path, const RunRow& row);

// The reverse; weights, and what compares them, stay empty. Throws Error{Io} when there is no such
// file, or it holds something else.
RunRow read_row(const std::string& path);

}  // namespace lockstep::tools
