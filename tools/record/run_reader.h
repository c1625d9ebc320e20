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

#include "engine/trace/breakdown.h"
#include "tools/run/workload.h"

namespace lockstep::tools {

struct FileHost {
  std::string cpu;
  std::size_t cores = 1;
  std::vector<std::string> gpus;  // their names
};

struct FileRow {
  std::string mode;
  std::string kind = "measured";  // or "acted", "predicted"
  bool is_on_cores = false;       // its devices share the cores of the machine that was measured
  std::size_t devices = 1;
  std::size_t physical_devices = 1;
  std::size_t threads_per_device = 1;
  std::size_t batch = 1;          // rows per step over all devices
  std::optional<bool> contended;  // absent if unknown
  std::vector<double> epoch_seconds;
  double step_seconds = 0;
  std::optional<double> speedup, ideal_speedup, efficiency;
  std::string what_if;                // in a predicted row, the change: "batch=64"
  std::string topology;               // the machine of a row that is simulated or predicted
  std::vector<double> busy_fraction;  // one for each device
  std::size_t comm_bytes = 0;         // that the busiest device sends in a step
  // The breakdown of the drawn step: its nine parts, step and overlapped_comm.
  std::optional<trace::StepBreakdown> breakdown;

  double samples_per_second() const { return static_cast<double>(batch) / step_seconds; }
};

struct RunFile {
  std::filesystem::path path;
  std::shared_ptr<const nlohmann::json> json;  // the whole file
  std::vector<std::string> command;
  FileHost host;
  std::vector<FileRow> rows;  // at least one
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

// "dp x4": a row's mode and devices; after a --what-if "dp x4 (bandwidth=2x)".
std::string name_of(const FileRow& row);

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
