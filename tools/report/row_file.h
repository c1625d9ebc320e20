// Training flags and rows of the table as files. `compare` exchanges them with ranks that are
// processes, and a run file's "config" holds the flags.
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

// The settings that all ranks of a job must have alike, and the size of the data; without those
// that belong to one rank, such as its devices and files. REQUIRES: the task's data is loaded.
std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task);

// Writes all flags as the user gave them, for another process. Throws Error{Usage} for a value that
// JSON cannot hold: a file name that is not UTF-8.
void write_flags(const std::string& path, const TrainingFlags& flags);

// The reverse of write_flags(). REQUIRES: this program wrote the file.
TrainingFlags read_flags(const std::string& path);

// The folder of a row, and the files in it.
struct RowFolder {
  std::string path;
  std::string flags() const { return path + "/flags.json"; }  // of its training
  std::string row() const { return path + "/row.cbor"; }
  std::string weights() const { return path + "/weights.safetensors"; }
};

// Writes the row without its weights, atomically.
void write_row(const std::string& path, const RunRow& row);

// The reverse of write_row(); weights, and their comparison, stay empty. REQUIRES: this program
// wrote the file.
RunRow read_row(const std::string& path);

}  // namespace lockstep::tools
