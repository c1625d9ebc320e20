// Which flags have no effect beside the others, and why. One table, so that train and compare
// refuse the same.
#pragma once

#include <span>
#include <string_view>
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

struct IdleFlag {
  std::string_view flag;
  bool (*is_idle)(const FlagSetting& setting);
  std::string_view reason;  // why, and what to do
};

// The table. A flag stands there once for every reason.
std::span<const IdleFlag> idle_flags();

// Throws Error{Usage} for a flag that was said (TrainingFlags::said) and has no effect in any row.
void require_effects(const FlagSetting& setting);

}  // namespace lockstep::tools
