// The flags of `lockstep run`: torchrun's, each also with underscores, and --bind-to.
#pragma once

#include <optional>
#include <string>

#include "engine/launch/process.h"

namespace lockstep::tools {

class Command;  // tools/cli/command.h

// As they stand on the command line.
struct RunFlags {
  std::string nnodes = "1";
  std::string nproc_per_node = "1";
  std::optional<int> node_rank;
  std::string master_address;
  std::optional<int> master_port;
  bool standalone = false;
  std::string rdzv_endpoint;
  std::string rdzv_backend = "static";
  std::string rdzv_id = "none";
  int max_restarts = 0;
  double monitor_interval = 0.1;
  double shutdown_timeout = 10;
  std::string log_dir;
  std::string redirects;
  std::string tee;
  std::string local_ranks_filter;
  std::string role = "default";
  bool no_python = false;
  std::string bind_to = "core";
};

// The defaults, or what torchrun's variables say instead: PET_NPROC_PER_NODE, PET_NNODES, ...
// Throws Error{Usage} for one that should be a number and is none.
RunFlags default_run_flags(const launch::Environment& environment);

// Their names and help. What flags holds are the defaults. flags must live as long as run.
void add_run_flags(Command& command, RunFlags& flags);

}  // namespace lockstep::tools
