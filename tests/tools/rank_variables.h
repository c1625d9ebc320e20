// The environments in which launchers start ranks of one host, so that tests can do it themselves.
#pragma once

#include <string>
#include <vector>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {

// A port that is free, as is the next one, where ranks of torchrun meet; the kernel gives it to no
// other program before it is used. It is also a number that no other test has now.
std::string free_port();

// One entry for each rank.
std::vector<Variables> ranks_by_hand(int num_ranks);
// While torchrun's agent holds the port itself.
std::vector<Variables> ranks_of_torchrun(int num_ranks);
std::vector<Variables> ranks_of_slurm_step(int num_ranks);

// `mpirun ... -np num_ranks`, or nothing where there is none.
std::string mpirun(int num_ranks);

}  // namespace lockstep::testing
