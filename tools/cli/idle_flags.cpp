#include "tools/cli/idle_flags.h"

#include <algorithm>

#include "engine/core/error.h"
#include "tools/cli/training_flag_table.h"

namespace lockstep::tools {

void require_effects(const FlagSetting& setting) {
  for (const TrainingFlag& flag : training_flags()) {
    if (std::ranges::count(setting.flags.said, flag.name) == 0) continue;
    for (const IdleRule& rule : flag.rules.idle) {
      require(!rule.is_idle(setting), ErrorCode::Usage, flag.name, "has no effect here: it {}",
              rule.reason);
    }
  }
}

}  // namespace lockstep::tools
