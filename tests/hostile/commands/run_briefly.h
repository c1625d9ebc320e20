// `lockstep` for a minute at most.
#pragma once

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {

// As run_lockstep(), which this program lets start `timeout`: what still works after 60 seconds is
// killed with all that it started, and has the exit code 128 + SIGKILL.
Outcome run_briefly(const Arguments& arguments, const std::filesystem::path& folder);
Outcome run_briefly(const Arguments& arguments);

}  // namespace lockstep::testing
