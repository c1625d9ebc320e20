// The run file as `explain`, `report` and `predict` read it: the figures that sentences and
// predictions are made of. docs/formats.md has every field; the page's script takes the others from
// the file itself. Fields that a reader can do without may be missing.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/record/run_file.h"
#include "tools/run/workload.h"

namespace lockstep::tools {

struct FileHost {
  std::string cpu;
  std::size_t cores = 1;
  std::vector<std::string> gpus;  // their names
};

struct RunFile {
  std::filesystem::path path;
  std::shared_ptr<const nlohmann::json> json;  // the whole file
  std::vector<std::string> command;
  FileHost host;
  std::vector<RunRow> rows;  // at least one
  std::optional<FileWorkload> workload;
  // For a run that a signal has ended early: "interrupted by SIGINT after 3 of 9 rows".
  std::optional<std::string> interrupted;

  // A flag's value, as JSON writes it if it is no string; empty if the file does not say.
  std::string config_value(std::string_view flag) const;
};

// operation: the tag of the errors, such as "explain"; it must outlive the call.
// Throws Error{Io} that names the file and the field: no such file, truncated, not JSON, another
// schema, another program's file, a field that is missing or cannot be true.
RunFile read_run_file(const std::filesystem::path& path, std::string_view operation);

// The same from the text of a file that is called `name`.
RunFile parse_run_file(std::string_view name, const std::string& text, std::string_view operation);

struct FoundRuns {
  std::vector<std::string> paths;     // the run files'
  std::vector<std::string> left_out;  // JSON files in folders that are not run files
};

// Returns the paths, with each folder replaced by its run files in the order of their names: all
// *.json whose schema is a run file's. Folders inside are not entered.
// Throws Error{Io} for a folder that cannot be read or holds no run file, and for a file in it that
// is not JSON.
FoundRuns find_runs(const std::vector<std::string>& paths, std::string_view operation);

}  // namespace lockstep::tools
