// Settings that follow from the training flags and a task: those that are recorded and compared,
// and an error for flags that have no effect.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/launch/rendezvous.h"
#include "tools/run/placement.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// Every flag, resolved, as the run file's "config". A flag that is not in force is null.
nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task);

// The settings that all ranks of a job must have alike, and the size of the data; without those
// that belong to one rank, such as its devices and files. REQUIRES: the task's data is loaded.
std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task);

// Throws Error{Usage} if a flag that the user gave (TrainingFlags::given) has no effect in any row.
// modes: of the rows of compare; one for train.
void reject_idle_flags(const TrainingFlags& flags, const std::vector<Mode>& modes,
                       DeviceType device);

}  // namespace lockstep::tools
