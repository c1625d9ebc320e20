// What a rank did at each instant of a step: the innermost span of each of its threads, and which
// communication cost time of its own. The same rules as the breakdown's (engine/trace/breakdown.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools::page {

// A span as the timeline file has it.
struct TimelineEvent {
  long long process = 0;
  long long row = 0;          // the event's tid: a lane's row
  double begin = 0, end = 0;  // seconds
  std::string category, name;
  std::string lane;  // "compute", "comm", "GPU comm", ...
  std::optional<long long> sequence;
  std::optional<long long> thread;  // absent: a GPU did it, or the file does not say
};

// Categories of pieces beside those of the file.
inline constexpr std::string_view kHiddenComm = "hidden communication";
inline constexpr std::string_view kUnjudgedComm = "unjudged communication";

struct LaneRules {
  bool has_threads = true;     // false: the file does not say who did what
  bool has_own_lanes = false;  // every lane works beside the others, as a predicted device's do
};

// spans: those of one rank in a step, none of category step or op. Cut so that of one thread no two
// overlap; what is on a comm lane also into "communication", which is exposed, and kHiddenComm,
// during which the rank computes. Where nobody can tell, nothing is cut, and what is on a comm lane
// is kUnjudgedComm.
std::vector<TimelineEvent> pieces_of(std::vector<TimelineEvent> spans, LaneRules rules);

}  // namespace lockstep::tools::page
