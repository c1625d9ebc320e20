// Reads one step from a timeline file (--trace): what each device did at each instant.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace lockstep::tools::page {

// The category of communication behind computation; "communication" is the part that cost time.
inline constexpr std::string_view kHiddenComm = "hidden communication";

// Returns the first rank's step of median length, and what all ranks did meanwhile, as page.js
// draws it:
//   {"step": 3, "seconds": 0.006, "predicted": false, "ranks": [{"name": "rank 0 on cpu:0",
//   "lanes":
//     [{"name": "compute", "spans": [[BEGIN, END, CATEGORY, NAME, BUCKET], ...]}, ...]}, ...]}
// Spans are in seconds since the first rank began; those of one thread do not overlap. BUCKET is
// the number of the all-reduce on its rank in this step; -1: not an all-reduce.
//
// The rules are those of the breakdown (engine/trace/breakdown.h): each instant of a thread belongs
// to its innermost span, and communication is hidden while its rank computes. A predicted timeline
// has one step, whose spans need no number.
// Throws Error{Io} that names the file and the problem: truncated, another program's timeline or
// format, or no steps.
nlohmann::ordered_json read_step_timeline(const std::filesystem::path& path,
                                          std::string_view operation);

}  // namespace lockstep::tools::page
