// Training flags and rows of the table as files: what `compare` and ranks that are processes hand
// each other, and the "config" of a run file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/launch/rendezvous.h"
#include "tools/report/run_file.h"
#include "tools/training/task.h"

namespace lockstep::tools {

// Every flag, resolved, as the run file's "config". A flag that is not in force is null.
nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task);

// Those that all ranks of a job must have alike, and the size of the data: not what a rank has for
// itself, such as its devices and its files. REQUIRES: the task's data was loaded.
std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task);

// All flags as they were said, for another process. Throws Error{Usage} for a value that JSON does
// not hold: a name of a file that is not UTF-8.
void write_flags(const std::string& path, const TrainingFlags& flags);

// The reverse. REQUIRES: this program wrote the file.
TrainingFlags read_flags(const std::string& path);

// The folder of a row, and what lies there for it.
struct RowFolder {
  std::string path;
  std::string flags() const { return path + "/flags.json"; }  // of its training (flags_json.h)
  std::string row() const { return path + "/row.json"; }
  std::string weights() const { return path + "/weights.safetensors"; }
};

// All of the row but its weights, atomically.
void write_row(const std::string& path, const RunRow& row);

// The reverse; weights, and what compares them, stay empty. REQUIRES: this program wrote the file.
RunRow read_row(const std::string& path);

}  // namespace lockstep::tools
