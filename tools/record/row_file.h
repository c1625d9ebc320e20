// Training flags as the "config" of a run file, and rows of the table as files, in which ranks that
// are processes hand them to `compare`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/launch/rendezvous.h"
#include "tools/record/run_file.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// Every flag, resolved, as the run file's "config". A flag that is not in force is null.
nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task);

// The settings that all ranks of a job must have alike, and the size of the data; without those
// that belong to one rank, such as its devices and files. REQUIRES: the task's data is loaded.
std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task);

// Writes the row without its weights, atomically.
void write_row(const std::string& path, const RunRow& row);

// The reverse of write_row(); weights, and their comparison, stay empty. REQUIRES: this program
// wrote the file.
RunRow read_row(const std::string& path);

}  // namespace lockstep::tools
