// Reads one step from a timeline file (--trace): what each device did at each instant.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools::page {

// The category of communication behind computation; "communication" is the part that cost time.
inline constexpr std::string_view kHiddenComm = "hidden communication";

struct LaneSpan {
  double begin = 0, end = 0;  // seconds since the step began
  std::string category;       // "forward", "communication", kHiddenComm, ...
  std::string name;
  int bucket = -1;  // number of the all-reduce on its rank in this step; -1: not an all-reduce
};

struct Lane {
  std::string name;             // "compute", "comm", ...
  std::vector<LaneSpan> spans;  // pieces: those of one thread do not overlap
};

struct RankLanes {
  std::string name;  // "rank 0 on cpu:0"
  std::vector<Lane> lanes;
};

struct StepTimeline {
  long long step = 0;  // its number
  double seconds = 0;  // from the first rank's begin to the last one's end
  bool is_predicted = false;
  std::string row = {};  // "ddp x4": the row of the run file; empty if none fits
  std::vector<RankLanes> ranks = {};
};

// Returns the first rank's step of median length, and what all ranks did meanwhile, by the rules of
// the breakdown (engine/trace/breakdown.h): each instant of a thread belongs to its innermost span,
// and communication is hidden while its rank computes. A predicted timeline has one step, whose
// spans need no number.
// Throws Error{Io} that names the file and the problem: truncated, another program's timeline or
// format, or no steps.
StepTimeline read_step_timeline(const std::filesystem::path& path, std::string_view operation);

}  // namespace lockstep::tools::page
