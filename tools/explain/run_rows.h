// Rows of a run file as the rows that `compare` has in hand, so that both judge a run by the same
// code (report/bound.h).
#pragma once

#include <vector>

#include "tools/report/run_file.h"
#include "tools/report/run_reader.h"

namespace lockstep::tools {

// A row of the file, and the same row as compare's.
struct RunRows {
  std::vector<const FileRow*> of_file;  // they live as long as the file
  std::vector<RunRow> rows;
};

// The rows of one kind, of the modes single, dp and ddp. Acted and predicted devices have hardware
// of their own.
RunRows rows_of_kind(const RunFile& file, std::string_view kind);

}  // namespace lockstep::tools
