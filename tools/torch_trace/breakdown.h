// Divides the steps of a rank's trace into parts, and says how much of its communication is hidden.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/torch_trace/rank_trace.h"

namespace lockstep::tools {

// Seconds. Each instant of a step counts for the first of these that it belongs to: on a GPU in
// this order, on the CPU with the loader first, since there the training thread itself collects
// rows.
struct TraceParts {
  double computation = 0;
  double exposed_comm = 0;
  double copies = 0;
  double loader = 0;
  double host = 0;         // operators and calls into CUDA beside which no device works
  double idle = 0;         // nothing that the trace shows: Python, and waiting
  double waiting = 0;      // the part of exposed_comm in which each collective waits for a rank
  double hidden_comm = 0;  // communication at the same time as computation or loading; no part

  double step() const { return computation + exposed_comm + copies + loader + host + idle; }
};

struct TracePartName {
  std::string_view name;
  double TraceParts::*seconds;
};
inline constexpr std::array<TracePartName, 8> kTraceParts = {{
    {"computation", &TraceParts::computation},
    {"exposed_communication", &TraceParts::exposed_comm},
    {"waiting", &TraceParts::waiting},
    {"copies", &TraceParts::copies},
    {"loader", &TraceParts::loader},
    {"host", &TraceParts::host},
    {"idle", &TraceParts::idle},
    {"hidden_communication", &TraceParts::hidden_comm},
}};

// The mean of each part; zeros for none.
TraceParts mean(const std::vector<TraceParts>& parts);

// One call of a collective within a step.
struct CollectiveCall {
  Collective collective;
  std::size_t step = 0;  // index of RankTrace::steps
  double hidden_seconds = 0;
  std::string hidden_by;  // the operator or kernel that ran longest beside it; may be empty
  Interval wait;          // until the last rank began it; empty with one rank's trace
};

// The GPU's time from its first kernel to its last, whatever the steps: what Meta's HTA calls the
// temporal breakdown, and its overlap.
struct DeviceTotals {
  double span = 0;
  double computation = 0;
  double other = 0;  // communication, copies and memsets that are not hidden
  double idle = 0;
  double communication = 0;
  double hidden = 0;  // of the communication
};

struct RankBreakdown {
  RankTrace trace;
  std::vector<TraceParts> steps;      // one for each of the trace's
  std::vector<CollectiveCall> calls;  // by begin; those that begin within a step
  Intervals covering;                 // what hides communication: computation, and the CPU's loader
  std::optional<DeviceTotals> device;  // empty for a trace without kernels
};

RankBreakdown break_down(RankTrace trace);

}  // namespace lockstep::tools
