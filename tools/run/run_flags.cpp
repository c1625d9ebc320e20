#include "tools/run/run_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "tools/cli/command.h"
#include "tools/commands.h"

namespace lockstep::tools {
namespace {

// Flags of `run` that stand alone; all others are followed by a value.
constexpr std::array<std::string_view, 5> kFlagsWithoutValue = {"--standalone", "--no-python",
                                                                "--no_python", "--help", "-h"};

std::optional<int> find_int(const launch::Environment& environment, const std::string& name) {
  const auto text = launch::find_variable(environment, name);
  if (!text) return std::nullopt;
  int number = 0;
  const auto [rest, problem] = std::from_chars(text->data(), text->data() + text->size(), number);
  require(problem == std::errc{} && rest == text->data() + text->size(), ErrorCode::Usage, name,
          "expected a number in this environment variable, found '{}'", *text);
  return number;
}

}  // namespace

RunFlags default_run_flags(const launch::Environment& environment) {
  RunFlags flags;
  for (const auto& [name, value] : {std::pair("PET_NNODES", &flags.nnodes),
                                    {"PET_NPROC_PER_NODE", &flags.nproc_per_node},
                                    {"PET_MASTER_ADDR", &flags.master_address},
                                    {"PET_RDZV_ENDPOINT", &flags.rdzv_endpoint},
                                    {"PET_RDZV_ID", &flags.rdzv_id},
                                    {"PET_LOG_DIR", &flags.log_dir}}) {
    *value = launch::find_variable(environment, name).value_or(*value);
  }
  flags.node_rank = find_int(environment, "PET_NODE_RANK");
  flags.master_port = find_int(environment, "PET_MASTER_PORT");
  flags.max_restarts = find_int(environment, "PET_MAX_RESTARTS").value_or(flags.max_restarts);
  flags.standalone = find_int(environment, "PET_STANDALONE").value_or(0) != 0;
  return flags;
}

void add_run_flags(Command& command, RunFlags& flags) {
  command.add_option("--nnodes", flags.nnodes, "machines; each starts its own `lockstep run`");
  command.add_option("--nproc-per-node,--nproc_per_node", flags.nproc_per_node,
                     "ranks on this machine: a number, gpu, cpu or auto");
  command.add_option("--node-rank,--node_rank", flags.node_rank, "which of the machines this is");
  const Flag address = command.add_option("--master-addr,--master_addr", flags.master_address,
                                          "the machine with --node-rank 0 (default 127.0.0.1)");
  const Flag port = command.add_option("--master-port,--master_port", flags.master_port,
                                       "where the ranks meet there (default 29500)");
  const Flag standalone =
      command.add_flag("--standalone", flags.standalone, "one machine, and a free port");
  const Flag endpoint = command.add_option("--rdzv-endpoint,--rdzv_endpoint", flags.rdzv_endpoint,
                                           "HOST:PORT instead of --master-addr and --master-port");
  endpoint.excludes(address).excludes(port);
  standalone.excludes(address).excludes(port).excludes(endpoint);
  command
      .add_option("--rdzv-backend,--rdzv_backend", flags.rdzv_backend,
                  "static or c10d; both mean the store of rank 0")
      .one_of({"static", "c10d"});
  command.add_option("--rdzv-id,--rdzv_id", flags.rdzv_id, "name of the job, for its logs");
  command.add_option("--max-restarts,--max_restarts", flags.max_restarts,
                     "how often all ranks are started again after a failure");
  command.add_option("--monitor-interval,--monitor_interval", flags.monitor_interval,
                     "accepted for torchrun's sake: failures are noticed at once");
  command.add_option("--shutdown-timeout,--shutdown_timeout", flags.shutdown_timeout,
                     "seconds between SIGTERM and SIGKILL");
  command.add_option("--log-dir,--log_dir", flags.log_dir,
                     "folder for logs: DIR/ID_x/attempt_N/LOCAL_RANK/{stdout,stderr}.log");
  command.add_option(
      "-r,--redirects", flags.redirects,
      "streams that go to logs only: 0 none, 1 stdout, 2 stderr, 3 both, or 0:3,1:2");
  command.add_option("-t,--tee", flags.tee,
                     "streams that go to logs and console, in the same words");
  command.add_option("--local-ranks-filter,--local_ranks_filter", flags.local_ranks_filter,
                     "only these local ranks on the console: 0,2");
  command.add_option("--role", flags.role, "accepted for torchrun's sake: passed on as ROLE_NAME");
  command
      .add_option(
          "--bind-to,--bind_to", flags.bind_to,
          "core: ranks have cores of their own, where there are enough; none: all share them")
      .one_of({"core", "none"});
  command.add_flag("--no-python,--no_python", flags.no_python,
                   "accepted for torchrun's sake: the program is always started as it is");
}

std::size_t find_program_to_run(const CommandLine& command) {
  if (command.size() < 2 || command[1] != "run") return command.size();
  std::size_t i = 2;
  while (i < command.size() && command[i] != "--" && command[i].starts_with('-')) {
    const bool has_value_inside = command[i].find('=') != std::string::npos;
    const bool stands_alone = std::ranges::count(kFlagsWithoutValue, command[i]) > 0;
    i += has_value_inside || stands_alone ? 1 : 2;
  }
  return std::min(i, command.size());
}

}  // namespace lockstep::tools
