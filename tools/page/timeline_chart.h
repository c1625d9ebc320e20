// The timeline of a step as inline SVG: a lane under the other, rank by rank.
#pragma once

#include <string>

#include "tools/page/step_timeline.h"

namespace lockstep::tools::page {

// More ranks are not drawn.
inline constexpr std::size_t kMostRanksDrawn = 16;

std::string timeline_svg(const StepTimeline& timeline);

}  // namespace lockstep::tools::page
