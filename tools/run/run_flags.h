// The flags of `lockstep run`: torchrun's, each also with underscores, and --bind-to; and what they
// ask for.
#pragma once

#include <optional>
#include <string>

#include "engine/launch/launcher.h"
#include "engine/launch/process.h"
#include "tools/commands.h"

namespace lockstep::tools {

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

bool has_logs(const launch::LaunchOptions& options);

// Makes a new folder "<log-dir>/<run id>_<six letters>", as torchrun does: no run overwrites
// another. Throws Error{Io}.
std::string make_log_folder(const RunFlags& flags);

// What the flags ask for, checked. command: the program that is to run. Without what is made when
// the group starts: its port under
// --standalone, its token, its folder for logs.
// Throws Error{Usage} that names the flag; Error{Device} for one rank per CUDA device where this
// program sees none.
launch::LaunchOptions group_options(const RunFlags& flags, const CommandLine& command);

}  // namespace lockstep::tools
