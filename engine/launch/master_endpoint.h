// Where the ranks of a job meet, as rank_environment.h says.
#pragma once

#include <string>

#include "engine/launch/launcher_family.h"
#include "engine/launch/slurm_step.h"

namespace lockstep::launch {

// A value, and the words that say where it comes from.
struct MasterAddress {
  std::string address;
  std::string from;
};

struct MasterPort {
  int port = kDefaultMasterPort;
  std::string from;
};

// slurm: what Slurm knows of the hosts; empty for all other launchers.
// Throws Error{Usage} that names MASTER_ADDR when there are several hosts and nobody says where.
MasterAddress decide_master_address(const Environment& environment, const LauncherFamily& family,
                                    Hosts hosts, const SlurmHosts& slurm);

// Throws Error{Usage} that names MASTER_PORT when that gives no port from 1 to 65535.
MasterPort decide_master_port(const Environment& environment, const LauncherFamily& family);

}  // namespace lockstep::launch
