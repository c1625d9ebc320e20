// The training flags as JSON and as text, made of their table (tools/cli/training_flag_table.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/launch/rendezvous.h"
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

// The reverse. Throws Error{Io} when there is no such file, or it holds something else.
TrainingFlags read_flags(const std::string& path);

}  // namespace lockstep::tools
