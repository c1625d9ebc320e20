// A folder of results: what a class, or a week, has measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

struct FoundRuns {
  std::vector<std::string> paths;     // of run files
  std::vector<std::string> left_out;  // JSON files of folders that are no run files
};

// The paths as they are, but in place of a folder the run files in it, in the order of their names:
// all files *.json whose schema is a run file's. Folders inside are not entered.
// Throws Error{Io} for a folder that cannot be read or holds no run file, and for a file in it that
// is not JSON.
FoundRuns find_runs(const std::vector<std::string>& paths, std::string_view operation);

}  // namespace lockstep::tools
