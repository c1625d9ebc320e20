// Starts this program again as the ranks of a job on this machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep::tools {

// Starts num_ranks processes with these arguments (argv as this program got it), as `lockstep run
// --standalone --nproc-per-node N` does, with the ranks' output unchanged. Returns the exit code
// for this program. REQUIRES: this process has no other thread. Throws the errors of
// launch::launch_ranks.
int start_ranks(const std::vector<std::string>& arguments, int num_ranks);

}  // namespace lockstep::tools
