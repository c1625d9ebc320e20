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

enum class Changes { with, without };

// The rows of one kind; without those that a --what-if changed, or with them. Acted and predicted
// devices have hardware of their own. A mode that compare does not know ("hierarchical") is judged
// as ddp is: each of its devices computes all, and sends gradients.
RunRows rows_of_kind(const RunFile& file, std::string_view kind, Changes changes);

// Whether the row is one of base's mode and devices that a --what-if changed in `what`, such as
// "batch", and in nothing else.
bool is_changed_in(const FileRow& row, const FileRow& base, std::string_view what);

}  // namespace lockstep::tools
