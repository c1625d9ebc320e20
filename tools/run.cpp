// lockstep run [flags] -- PROGRAM ARGUMENTS: starts the ranks of a job on this machine, with
// torchrun's flags and environment variables.
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/launch/process.h"
#include "engine/launch/rank_environment.h"
#include "engine/launch/rendezvous.h"
#include "tools/cli/command_line.h"
#include "tools/commands.h"
#include "tools/run/run_flags.h"

namespace lockstep::tools {
namespace {

// On one machine the launcher makes the secret. Several launchers cannot agree on one by
// themselves; if all of them run here, the ranks meet on the loopback and need none.
void set_token(launch::LaunchOptions& options) {
  if (launch::find_token(options.environment)) return;
  if (options.num_nodes == 1) {
    options.token = launch::make_token();
    return;
  }
  require(launch::is_loopback(options.master_address), ErrorCode::Usage, "LOCKSTEP_TOKEN",
          "set this environment variable to the same secret on each of the {} machines (openssl "
          "rand -hex 32)",
          options.num_nodes);
}

// Ranks would each read a part of the shared input, so they get none.
void warn_of_unread_input() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  struct stat status {};
  const bool is_given =
      ::fstat(STDIN_FILENO, &status) == 0 &&
      (S_ISFIFO(status.st_mode) || (S_ISREG(status.st_mode) && status.st_size > 0));
  if (!is_given || ::poll(&input, 1, 0) != 1 || (input.revents & POLLIN) == 0) return;
  fmt::print(stderr,
             "lockstep: [run] the ranks' standard input is empty: let the program read a file\n");
}

int run_group(const RunFlags& flags, const CommandLine& command) {
  require(!command.empty(), ErrorCode::Usage, "run",
          "say what to run: lockstep run --nproc-per-node 4 -- PROGRAM ARGUMENTS");
  launch::LaunchOptions options = group_options(flags, command);
  // Held until the end, so that no other process gets the port.
  std::optional<launch::PortReservation> port;
  const bool is_one_machine = options.num_nodes == 1;
  const int wanted = flags.standalone ? 0 : options.master_port;  // 0: any
  if (options.node_rank == 0 && (options.num_nodes * options.num_ranks > 1 || wanted == 0)) {
    port.emplace(wanted, is_one_machine ? launch::PortReservation::Scope::loopback
                                        : launch::PortReservation::Scope::everywhere);
    options.master_port = port->port();
  }
  set_token(options);
  warn_of_unread_input();
  if (has_logs(options)) {
    launch::find_program(options.command[0], options.environment);  // before a folder is made
    options.log_folder = make_log_folder(flags);
    fmt::print(stderr, "lockstep: [run] logs: {}\n", options.log_folder);
  }
  std::fflush(nullptr);
  return launch::launch_ranks(options);
}

}  // namespace

void add_run_command(CLI::App& parent, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<RunFlags>(default_run_flags(launch::current_environment()));
  CLI::App& run = *parent.add_subcommand("run", "Start a program once per rank, as torchrun does");
  add_run_flags(run, *flags);
  run.footer(
      "Then: -- PROGRAM ARGUMENTS. Example: lockstep run --nproc-per-node 4 -- lockstep train "
      "--parallel ddp\nThe ranks have an empty standard input.\nSeveral machines, on each: "
      "lockstep run --nnodes 2 --node-rank 0 "
      "--master-addr HOST --nproc-per-node 4 -- ...");
  std::size_t program = find_program_to_run(command);
  if (program < command.size() && command[program] == "--") ++program;
  const CommandLine job(command.begin() + static_cast<std::ptrdiff_t>(program), command.end());
  run.callback([flags, job, &exit_code] { exit_code = run_group(*flags, job); });
}

}  // namespace lockstep::tools
