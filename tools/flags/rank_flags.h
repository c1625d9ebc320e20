// The flags that say who the ranks of a command are, and how they talk: --ranks, --comm, --plan,
// --transport, --link and --comm-timeout, which train, compare and bench all-reduce share.
#pragma once

#include <optional>
#include <string>

#include "engine/comm/link.h"
#include "engine/core/device.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::tools {

// The flags as they stand on the command line; empty: not given.
struct RankFlags {
  std::string ranks;  // threads or processes
  std::string comm;   // own or nccl
  std::string plan = "auto";
  std::string transport = "auto";
  std::string link;  // such as 50us,1GB/s
  double comm_timeout = 30;
  bool nccl_share_gpu = false;
};

// The place where a command's ranks run.
enum class Ranks {
  threads,       // threads of this process
  start,         // as processes that this one has to start (run/processes.h)
  this_process,  // this process is one of them: a launcher started it
};

// Decides it, and writes the decision into flags.ranks, and into flags.comm if ranks are threads
// (processes agree on it among themselves, see rank_job.h). Ranks are processes if a launcher
// started more than one, if --ranks says so, or if --comm is nccl.
// num_devices: the value of --devices.
// Throws Error{Usage} if the environment is contradictory, if --ranks threads or another number of
// devices is asked for inside a job, and for a --comm, --transport or --link that these ranks
// cannot have.
Ranks resolve_ranks(RankFlags& flags, const launch::RankEnvironment& environment,
                    std::optional<int> num_devices);

// The value of --link, if it is given.
std::optional<comm::LinkSpec> modelled_link(const RankFlags& flags);

// Throws Error{Usage} if --link is given and ranks that are threads have devices of this type: the
// modelled link can only delay data in host memory.
void require_linkable(const RankFlags& flags, DeviceType type);

// "simulated link ...: ...": a note that goes with times under --link; empty without it.
std::string link_note(const RankFlags& flags);

// True if the first `count` devices of this process are physical GPUs, each a different one.
bool have_own_gpus(int count);

// Reports once, before any rank starts, an error that each of them would find: throws Error{Usage}
// if --comm nccl is to connect ranks on the CPU, or ranks of this machine that share a GPU without
// --nccl-share-gpu.
void require_reachable_devices(const RankFlags& flags, DeviceType type, int num_ranks);

}  // namespace lockstep::tools
