// One step out of a timeline file (--trace-format perfetto): what each rank did when.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::tools::page {

struct LaneSpan {
  double begin = 0, end = 0;  // seconds since the step began
  std::string category;       // "forward", "communication", ...
  std::string name;
};

struct Lane {
  std::string name;             // "compute", "comm", ...
  std::vector<LaneSpan> spans;  // a nested one behind what surrounds it
};

struct RankLanes {
  std::string name;  // "rank 0 on cpu:0"
  std::vector<Lane> lanes;
};

struct StepTimeline {
  long long step = 0;  // its number
  double seconds = 0;  // from the first rank's begin to the last one's end
  std::vector<RankLanes> ranks;
};

// The step of median length of the first rank, and what all ranks did meanwhile.
// Throws Error{Io} that names the file, and what is wrong: truncated, another program's timeline or
// format, no steps in it.
StepTimeline read_step_timeline(const std::filesystem::path& path, std::string_view operation);

}  // namespace lockstep::tools::page
