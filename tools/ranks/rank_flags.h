// Who the ranks of a command are, and by what they talk: --ranks, --comm, --plan, --transport,
// --link and --comm-timeout, which train, compare and bench all-reduce share.
#pragma once

#include <optional>
#include <string>

#include "engine/comm/link.h"
#include "engine/core/device.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::tools {

// As they stand on the command line; empty: not said.
struct RankFlags {
  std::string ranks;  // threads or processes
  std::string comm;   // own, nccl or mpi
  std::string plan = "auto";
  std::string transport = "auto";
  std::string link;  // such as 50us,1GB/s
  double comm_timeout = 30;
  bool nccl_share_gpu = false;
};

// Where the ranks of a command run.
enum class Ranks {
  threads,       // of this process
  start,         // as processes that this one has to start (start_ranks.h)
  this_process,  // this process is one of them: a launcher started it
};

// Decides, and writes what it decided into flags.ranks, and into flags.comm where ranks are threads
// (for processes the ranks agree on it, see rank_job.h). Ranks are processes where a launcher
// started more than one, where --ranks says so, or where --comm nccl or mpi does.
// num_devices: what --devices asks for.
// Throws Error{Usage} when the environment is contradictory, when --ranks threads or another number
// of devices is asked for inside a job, and for a --comm, --transport or --link that these ranks do
// not have.
Ranks resolve_ranks(RankFlags& flags, const launch::RankEnvironment& environment,
                    std::optional<int> num_devices);

// What --link says, if it is given.
std::optional<comm::LinkSpec> modelled_link(const RankFlags& flags);

// Throws Error{Usage} when --link is given and ranks that are threads have devices of this type:
// what the link delays is in host memory.
void require_linkable(const RankFlags& flags, DeviceType type);

// "modelled link: ...": what a reader of times has to know about --link; empty without it.
std::string link_note(const RankFlags& flags);

// Whether the first `count` devices of this process are GPUs of their own.
bool have_own_gpus(int count);

// What every rank would find once it has been started, so that it is said once: throws Error{Usage}
// when --comm nccl is to connect ranks on the CPU, or ranks of this machine that share a GPU
// without
// --nccl-share-gpu.
void require_reachable_devices(const RankFlags& flags, DeviceType type, int num_ranks);

}  // namespace lockstep::tools
