// Every training flag, resolved, as the run file's "config". A flag that is not in force is null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/launch/roll_call.h"
#include "tools/training/task.h"

namespace lockstep::tools {

nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task);

// Those that all ranks of a job must have alike, and the size of the data: not what a rank has for
// itself, such as its devices and its files. REQUIRES: the task's data was loaded.
std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task);

}  // namespace lockstep::tools
