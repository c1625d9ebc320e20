// What `lockstep explain` says about traces, as text for a terminal and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tools/torch_trace/advice.h"
#include "tools/torch_trace/ranks.h"

namespace lockstep::tools {

// How long an all-reduce of so many bytes takes on the links that the user named.
struct Links {
  std::string name;  // of the topology; empty: none was named
  std::function<double(std::size_t num_ranks, double num_bytes)> all_reduce_seconds;
};

// Several lines, none wider than the terminal.
std::string trace_answer(const TraceRun& run, const Links& links);

// The breakdown of each rank and step, the collectives and the changes. Times are seconds.
nlohmann::ordered_json trace_answer_json(const TraceRun& run, const Links& links);

}  // namespace lockstep::tools
