// What Slurm's variables say of the step whose task this process is.
#pragma once

#include <string>

#include "engine/launch/environment.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::launch {

// Is this process a task of a step, as srun starts them? In a batch script and in an interactive
// shell it is none, though most of the variables are set there too.
// Throws Error{Usage} when SLURM_STEP_ID is no number.
bool is_inside_slurm_step(const Environment& environment);

// The hosts of the step's tasks. Values without a source ("from") are not known.
struct SlurmHosts {
  Hosts hosts = Hosts::one;
  std::string first_host;
  std::string first_host_from;
  int local_world_size = 0;  // tasks on this host
  std::string local_world_size_from;
};

// world_size: of the step. Throws Error{Usage} that names the variable: the list of nodes is
// missing and cannot be done without, or a list does not follow Slurm's notation.
SlurmHosts find_slurm_hosts(const Environment& environment, int world_size);

}  // namespace lockstep::launch
