// One step out of a timeline file (--trace): what each rank did when.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::tools::page {

struct LaneSpan {
  double begin = 0, end = 0;  // seconds since the step began
  std::string category;       // "forward", "communication" (exposed), kHiddenComm, kUnjudgedComm...
  std::string name;
};

struct Lane {
  std::string name;             // "compute", "comm", ...
  std::vector<LaneSpan> spans;  // pieces (lane_pieces.h)
};

struct RankLanes {
  std::string name;  // "rank 0 on cpu:0"
  std::vector<Lane> lanes;
};

struct StepTimeline {
  long long step = 0;  // its number
  double seconds = 0;  // from the first rank's begin to the last one's end
  bool is_predicted = false;
  bool is_judged = false;  // whether the file tells hidden communication from exposed
  std::string row = {};    // "ddp x4": of which row of the run file; empty where nobody can tell
  std::vector<RankLanes> ranks = {};
};

// The step of median length of the first rank, and what all ranks did meanwhile. A predicted
// timeline has one step, whose spans need no number.
// Throws Error{Io} that names the file, and what is wrong: truncated, another program's timeline or
// format, no steps in it.
StepTimeline read_step_timeline(const std::filesystem::path& path, std::string_view operation);

}  // namespace lockstep::tools::page
