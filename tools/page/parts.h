// The parts of a step as the page names and colours them.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "engine/trace/breakdown.h"
#include "tools/page/lane_pieces.h"

namespace lockstep::tools::page {

struct StepPart {
  std::string_view color;  // "c-" + this is its class in the style sheet
  std::string_view name;
  double trace::StepBreakdown::*seconds;
};

// In the order of the bars.
inline constexpr std::array<StepPart, 9> kStepParts = {
    {{"forward", "forward", &trace::StepBreakdown::forward},
     {"backward", "backward", &trace::StepBreakdown::backward},
     {"optimizer", "optimizer", &trace::StepBreakdown::optimizer},
     {"comm", "communication, exposed", &trace::StepBreakdown::exposed_comm},
     {"copy", "copy", &trace::StepBreakdown::copy},
     {"wait", "wait", &trace::StepBreakdown::wait},
     {"data", "data", &trace::StepBreakdown::data},
     {"host", "host", &trace::StepBreakdown::host},
     {"unattributed", "unattributed", &trace::StepBreakdown::unattributed}}};

// What a timeline has beside them, by LaneSpan::category (lane_pieces.h).
inline constexpr std::array<StepPart, 2> kLaneParts = {
    {{"hidden", "communication, hidden behind computation", nullptr},
     {"unjudged", "communication", nullptr}}};

// The colour of a span's category; of an unknown one that of "unattributed".
inline std::string_view part_of_category(std::string_view category) {
  if (category == "communication") return "comm";
  if (category == kHiddenComm) return "hidden";
  if (category == kUnjudgedComm) return "unjudged";
  for (const StepPart& part : kStepParts) {
    if (part.color == category) return part.color;
  }
  return "unattributed";
}

}  // namespace lockstep::tools::page
