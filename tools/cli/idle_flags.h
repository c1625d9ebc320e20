// Flags that have no effect beside the others: train and compare refuse the same ones.
#pragma once

#include <vector>

#include "engine/core/device.h"
#include "tools/cli/training_flags.h"
#include "tools/training/placement.h"

namespace lockstep::tools {

// What decides whether a flag has an effect.
struct FlagSetting {
  const TrainingFlags& flags;
  std::vector<Mode> modes;  // of the rows of compare; one for train
  DeviceType device = DeviceType::cpu;
};

// Throws Error{Usage} for a flag that was said (TrainingFlags::said) and has no effect in any row.
void require_effects(const FlagSetting& setting);

}  // namespace lockstep::tools
