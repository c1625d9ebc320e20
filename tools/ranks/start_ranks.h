// Starts this program again as the ranks of a job on this machine.
#pragma once

#include <string>
#include <vector>

#include "tools/ranks/rank_flags.h"

namespace lockstep::tools {

// The path of this program. "/proc/self/exe" will not do: mpirun would take it for itself.
std::string this_program();

// Starts num_ranks processes with these arguments (argv as this program got it): with --comm mpi by
// `mpirun -np N`, else as `lockstep run --standalone --nproc-per-node N` does, with the ranks'
// output unchanged. Returns the exit code for this program. With mpirun it does not return, since
// mpirun replaces this process.
// REQUIRES: this process has no other thread.
// Throws Error{Usage} if --comm mpi finds no mpirun; else the errors of launch::launch_ranks.
int start_ranks(const RankFlags& flags, const std::vector<std::string>& arguments, int num_ranks);

}  // namespace lockstep::tools
