// Every training flag, resolved, as the run file's "config". A flag that is not in force is null.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/training/task.h"

namespace lockstep::tools {

nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task);

}  // namespace lockstep::tools
