// What `lockstep run` does with the ranks' output: --log-dir, --redirects, --tee and
// --local-ranks-filter.
#pragma once

#include <string>

#include "engine/launch/launcher.h"
#include "tools/run/run_flags.h"

namespace lockstep::tools {

// Says in options which streams of which local ranks are logged, and which are shown.
// REQUIRES: options.num_ranks is set. Throws Error{Usage} that names the flag.
void set_streams(launch::LaunchOptions& options, const RunFlags& flags);

bool has_logs(const launch::LaunchOptions& options);

// Makes a new folder "<log-dir>/<run id>_<six letters>", as torchrun does: no run overwrites
// another. Throws Error{Io}.
std::string make_log_folder(const RunFlags& flags);

}  // namespace lockstep::tools
