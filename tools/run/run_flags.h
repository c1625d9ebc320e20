// The flags of `lockstep run`: torchrun's, each also spelled with underscores, and --bind-to; and
// the options that they make.
#pragma once

#include <optional>
#include <string>

#include "engine/launch/launcher.h"
#include "engine/launch/process.h"
#include "tools/commands.h"

namespace lockstep::tools {

// The flags as they stand on the command line.
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

// The defaults, or the values of torchrun's variables: PET_NPROC_PER_NODE, PET_NNODES, ...
// Throws Error{Usage} for a variable that should be a number and is not.
RunFlags default_run_flags(const launch::Environment& environment);

// Adds their names and help; the values in `flags` are the defaults. flags must live as long as
// run.
void add_run_flags(CLI::App& command, RunFlags& flags);

bool has_logs(const launch::LaunchOptions& options);

// Makes a new folder "<log-dir>/<run id>_<six letters>", as torchrun does, so that no run
// overwrites another. Throws Error{Io}.
std::string make_log_folder(const RunFlags& flags);

// Checks the flags and turns them into options. command: the program to run. The port under
// --standalone, the token and the folder for logs are missing: they are made when the group starts.
// Throws Error{Usage} that names the flag; Error{Device} if one rank per CUDA device is asked for
// and this program sees none.
launch::LaunchOptions group_options(const RunFlags& flags, const CommandLine& command);

}  // namespace lockstep::tools
