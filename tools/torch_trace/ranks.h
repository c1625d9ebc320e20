// Puts the traces of several ranks together: who waits for whom.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tools/torch_trace/breakdown.h"

namespace lockstep::tools {

struct SlowestRank {
  std::size_t rank = 0;
  std::size_t num_steps = 0;         // in which the others waited longest for it
  std::optional<std::size_t> since;  // the step's number, if it is so in all steps from there on
  double wait_seconds = 0;           // of each other rank for it, a step
  std::string_view part;             // of the step, in which it is longest behind the median rank
  double more_seconds = 0;
};

struct TraceRun {
  std::vector<RankBreakdown> ranks;  // by rank
  std::size_t world_size = 1;
  std::vector<std::size_t> missing_ranks;
  // Collectives whose calls were found in all ranks' traces: only these have waits. Calls of a
  // smaller group than all ranks are left alone.
  std::size_t num_matched = 0;
  std::vector<double> clock_offsets;  // seconds added to a rank's times; empty: clocks agree
  std::optional<SlowestRank> slowest;

  TraceParts mean_parts() const;  // over all ranks and steps
  std::size_t num_steps() const;  // the fewest of a rank
};

// Throws Error{Io} for two traces of one rank, or of runs that differ.
TraceRun join_ranks(std::vector<RankBreakdown> ranks);

}  // namespace lockstep::tools
