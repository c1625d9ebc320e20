// Who the ranks of a command are, and by what they talk: --ranks, --comm, --plan, --transport and
// --comm-timeout, which train, compare and bench all-reduce share.
#pragma once

#include <optional>
#include <string>

#include "engine/launch/rank_environment.h"

namespace lockstep::tools {

class Command;  // tools/cli/command.h

// As they stand on the command line; empty: not said.
struct RankFlags {
  std::string ranks;  // threads or processes
  std::string comm;   // own, nccl or mpi
  std::string plan = "auto";
  std::string transport = "auto";
  double comm_timeout = 30;
  bool nccl_share_gpu = false;
};

void add_rank_flags(Command& command, RankFlags& flags);

// Where the ranks of a command run.
enum class Ranks {
  threads,       // of this process
  start,         // as processes that this one has to start (start_ranks.h)
  this_process,  // this process is one of them: a launcher started it
};

// Decides, and writes what it decided into flags.ranks, and into flags.comm where ranks are threads
// (for processes the ranks agree on it, see communicators.h). Ranks are processes where a launcher
// started more than one, where --ranks says so, or where --comm nccl or mpi does.
// num_devices: what --devices asks for.
// Throws Error{Usage} when the environment is contradictory, when --ranks threads or another number
// of devices is asked for inside a job, and for a --comm or --transport that these ranks do not
// have.
Ranks resolve_ranks(RankFlags& flags, const launch::RankEnvironment& environment,
                    std::optional<int> num_devices);

}  // namespace lockstep::tools
