// Says which changes to a PyTorch run would gain most. Each figure follows from the breakdown.
#pragma once

#include <string>
#include <vector>

#include "tools/torch_trace/ranks.h"

namespace lockstep::tools {

// All calls of one kind and size, over all ranks and steps.
struct CollectiveGroup {
  std::string kind;
  double num_bytes = 0;  // 0: unknown
  std::size_t num_ranks = 1;
  double calls = 0;         // of a rank in a step
  double seconds = 0;       // the mean of a call, and so below
  double wait_seconds = 0;  // for the last rank
  double hidden_seconds = 0;
  std::string hidden_by;  // what ran longest beside it, in most calls
  double element_bytes = 0;

  double transfer_seconds() const { return seconds - wait_seconds; }
  // Bytes that cross each rank's link a second, as NCCL's tests count: 2(n-1)/n of an all-reduce's,
  // (n-1)/n of an all-gather's, reduce-scatter's and all-to-all's, and all of others'. 0 if the
  // size is unknown. Without waits (a single rank's trace) it is a lower bound.
  double bus_bytes_per_second() const;
};

// Those that take longest in a step first.
std::vector<CollectiveGroup> collective_groups(const TraceRun& run);

struct Change {
  std::string what;     // "load batches in worker processes"
  double seconds = 0;   // of a step
  std::string because;  // the figures and the assumption
};

// The three that would gain most, if they gain a fiftieth of a step or more. Gains don't add up.
std::vector<Change> best_changes(const TraceRun& run, const std::vector<CollectiveGroup>& groups);

}  // namespace lockstep::tools
