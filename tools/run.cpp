// lockstep run [flags] -- PROGRAM ARGUMENTS: starts the ranks of a job on this machine, with
// torchrun's flags and torchrun's environment variables.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "engine/core/error.h"
#include "engine/launch/init_method.h"
#include "engine/launch/job_token.h"
#include "engine/launch/port.h"
#include "engine/launch/rank_environment.h"
#include "engine/launch/worker_group.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/numbers.h"
#include "tools/commands.h"

namespace lockstep::tools {
namespace {

using launch::Streams;

constexpr const char* kName = "run";

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

// Flags of `run` that stand alone; all others are followed by a value.
constexpr std::array<std::string_view, 5> kFlagsWithoutValue = {"--standalone", "--no-python",
                                                                "--no_python", "--help", "-h"};

// "1", or torchrun's "1:1". Ranks that come and go while a job runs are not offered.
int parse_num_nodes(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string low = text.substr(0, colon);
  const std::string high = colon == std::string::npos ? low : text.substr(colon + 1);
  const std::vector<std::size_t> numbers = parse_list("--nnodes", low + "," + high);
  require(numbers.size() == 2 && numbers[0] == numbers[1], ErrorCode::Usage, "--nnodes",
          "expected one number of machines, found '{}'; a job keeps its size", text);
  require(numbers[0] >= 1 && numbers[0] <= launch::kMaxWorldSize, ErrorCode::Usage, "--nnodes",
          "expected 1 to {} machines, found {}", launch::kMaxWorldSize, numbers[0]);
  return static_cast<int>(numbers[0]);
}

int parse_num_workers(const std::string& text) {
  const int num_cores = static_cast<int>(runtime::num_cores());
  if (text == "cpu") return num_cores;
  if (text == "gpu" || text == "auto") {
    const int num_gpus = runtime::num_devices(DeviceType::cuda);
    require(num_gpus > 0 || text == "auto", ErrorCode::Device, "--nproc-per-node",
            "'gpu' means one rank for each CUDA device, and this program sees none; say a number, "
            "or cpu");
    return num_gpus > 0 ? num_gpus : num_cores;
  }
  const std::vector<std::size_t> numbers = parse_list("--nproc-per-node", text);
  require(numbers.size() == 1 && numbers[0] >= 1 && numbers[0] <= launch::kMaxWorldSize,
          ErrorCode::Usage, "--nproc-per-node",
          "expected 1 to {} ranks, gpu, cpu or auto, found '{}'", launch::kMaxWorldSize, text);
  return static_cast<int>(numbers[0]);
}

Streams parse_stream(const char* flag, std::string_view text) {
  require(text.size() == 1 && text[0] >= '0' && text[0] <= '3', ErrorCode::Usage, flag,
          "expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a list as in 0:3,1:2 (local "
          "rank:streams), found '{}'",
          text);
  return static_cast<Streams>(text[0] - '0');
}

// "3" for all ranks, or "0:3,1:2" for some.
std::vector<Streams> parse_streams(const char* flag, const std::string& text, int num_workers) {
  if (text.find(':') == std::string::npos) {
    const Streams streams = text.empty() ? Streams::none : parse_stream(flag, text);
    return std::vector<Streams>(static_cast<std::size_t>(num_workers), streams);
  }
  std::vector<Streams> result(static_cast<std::size_t>(num_workers), Streams::none);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    const std::vector<std::size_t> ranks = parse_list(flag, entry.substr(0, colon));
    require(ranks.size() == 1 && ranks[0] < result.size(), ErrorCode::Usage, flag,
            "expected local ranks below {}, found '{}'", num_workers, entry);
    result[ranks[0]] =
        parse_stream(flag, std::string_view(entry).substr(std::min(colon + 1, entry.size())));
    begin = end + 1;
  }
  return result;
}

bool is_any(const std::vector<Streams>& streams) {
  return std::ranges::any_of(streams, [](Streams s) { return s != Streams::none; });
}

// A new folder "<log-dir>/<run id>_<six letters>", as torchrun makes it: no run overwrites another.
std::string make_log_folder(const RunFlags& flags) {
  const std::string base = flags.log_dir.empty() ? "/tmp" : flags.log_dir;
  std::error_code problem;
  std::filesystem::create_directories(base, problem);
  std::string folder =
      fmt::format("{}/{}_XXXXXX", base, flags.log_dir.empty() ? "lockstep" : flags.rdzv_id);
  require(!problem && ::mkdtemp(folder.data()) != nullptr, ErrorCode::Io, "--log-dir",
          "cannot make a folder in {}: {}", base,
          problem ? problem.message() : std::generic_category().message(errno));
  return folder;
}

void set_logs(launch::WorkerGroupOptions& options, const RunFlags& flags) {
  const int num_workers = options.num_workers;
  options.redirects = parse_streams("--redirects", flags.redirects, num_workers);
  options.tee = parse_streams("--tee", flags.tee, num_workers);
  // A folder for logs, and nothing said about what goes there: all of it, and the console too.
  if (!flags.log_dir.empty() && flags.redirects.empty() && flags.tee.empty()) {
    options.tee = parse_streams("--tee", "3", num_workers);
  }
  if (!flags.local_ranks_filter.empty()) {
    for (const std::size_t rank : parse_list("--local-ranks-filter", flags.local_ranks_filter)) {
      require(rank < static_cast<std::size_t>(num_workers), ErrorCode::Usage,
              "--local-ranks-filter", "expected local ranks below {}, found {}", num_workers, rank);
      options.console_filter.push_back(static_cast<int>(rank));
    }
  }
}

void set_nodes(launch::WorkerGroupOptions& options, const RunFlags& flags) {
  options.num_nodes = parse_num_nodes(flags.nnodes);
  options.num_workers = parse_num_workers(flags.nproc_per_node);
  require(options.num_nodes * options.num_workers <= launch::kMaxWorldSize, ErrorCode::Usage, kName,
          "{} ranks on each of {} machines are more than {}", options.num_workers,
          options.num_nodes, launch::kMaxWorldSize);
  require(flags.node_rank || options.num_nodes == 1, ErrorCode::Usage, "--node-rank",
          "with {} machines, say which one this is: --node-rank 0 to {}", options.num_nodes,
          options.num_nodes - 1);
  options.node_rank = flags.node_rank.value_or(0);
  require(options.node_rank >= 0 && options.node_rank < options.num_nodes, ErrorCode::Usage,
          "--node-rank", "expected 0 to {}, found {}", options.num_nodes - 1, options.node_rank);
}

void set_master(launch::WorkerGroupOptions& options, const RunFlags& flags) {
  options.master_port = flags.master_port.value_or(launch::kDefaultMasterPort);
  require(options.master_port >= 1 && options.master_port <= 65535, ErrorCode::Usage,
          "--master-port", "expected a port from 1 to 65535, found {}", options.master_port);
  if (!flags.master_address.empty()) options.master_address = flags.master_address;
  if (!flags.rdzv_endpoint.empty()) {
    const launch::Endpoint endpoint =
        launch::parse_endpoint("--rdzv-endpoint", flags.rdzv_endpoint, launch::kDefaultMasterPort);
    options.master_address = endpoint.host;
    options.master_port = endpoint.port;
  }
  if (options.num_nodes == 1) return;
  require(!flags.standalone, ErrorCode::Usage, "--standalone",
          "is for one machine; {} machines meet at --master-addr", options.num_nodes);
  require(!flags.master_address.empty() || !flags.rdzv_endpoint.empty(), ErrorCode::Usage,
          "--master-addr", "with {} machines, name the one with --node-rank 0", options.num_nodes);
}

// On one machine the launcher makes the secret. Several launchers cannot agree on one by
// themselves: LOCKSTEP_TOKEN, or a file that all of them can read.
void set_token(launch::WorkerGroupOptions& options) {
  if (launch::find_variable(options.environment, "LOCKSTEP_TOKEN")) return;
  if (options.num_nodes == 1) {
    options.token = launch::make_token();
    return;
  }
  if (launch::find_variable(options.environment, "LOCKSTEP_TOKEN_FILE")) return;
  options.token_file =
      launch::default_token_file(options.environment, options.master_port).string();
  if (options.node_rank != 0) return;
  fmt::print(stderr,
             "lockstep: [run] the ranks share a secret through {}; for machines that do not share "
             "that folder, set LOCKSTEP_TOKEN to the same value on each (openssl rand -hex 32)\n",
             options.token_file);
}

int run_group(const RunFlags& flags, const CommandLine& command) {
  require(!command.empty(), ErrorCode::Usage, kName,
          "say what to run: lockstep run --nproc-per-node 4 -- PROGRAM ARGUMENTS");
  launch::WorkerGroupOptions options;
  options.command = command;
  options.environment = launch::current_environment();
  set_nodes(options, flags);
  set_master(options, flags);
  set_logs(options, flags);
  require(flags.max_restarts >= 0, ErrorCode::Usage, "--max-restarts",
          "expected 0 or more, found {}", flags.max_restarts);
  options.max_restarts = flags.max_restarts;
  require_positive("--monitor-interval", flags.monitor_interval);
  options.shutdown_seconds = require_not_negative("--shutdown-timeout", flags.shutdown_timeout);
  require(flags.rdzv_id.find('/') == std::string::npos, ErrorCode::Usage, "--rdzv-id",
          "names a folder of logs, so it must not hold '/'");
  options.run_id = flags.rdzv_id;
  options.role = flags.role;
  options.binding =
      flags.bind_to == "core" ? launch::Binding::bind_to_cores : launch::Binding::none;

  // Held until the end, so that nobody else gets a port that was free.
  std::optional<launch::PortReservation> port;
  const bool is_one_machine = options.num_nodes == 1;
  if (options.node_rank == 0 && options.num_nodes * options.num_workers > 1) {
    port.emplace(flags.standalone ? 0 : options.master_port,
                 is_one_machine ? launch::PortReservation::Scope::loopback
                                : launch::PortReservation::Scope::everywhere);
    options.master_port = port->port();
  }
  set_token(options);
  if (is_any(options.redirects) || is_any(options.tee)) {
    options.log_folder = make_log_folder(flags);
    fmt::print(stderr, "lockstep: [run] logs: {}\n", options.log_folder);
  }
  std::fflush(nullptr);
  return launch::run_worker_group(options);
}

void add_torchruns_flags(CLI::App& run, RunFlags& flags) {
  run.add_option("--nnodes", flags.nnodes, "machines; each starts its own `lockstep run`")
      ->capture_default_str();
  run.add_option("--nproc-per-node,--nproc_per_node", flags.nproc_per_node,
                 "ranks on this machine: a number, gpu, cpu or auto")
      ->capture_default_str();
  run.add_option("--node-rank,--node_rank", flags.node_rank, "which of the machines this is");
  auto* const address = run.add_option("--master-addr,--master_addr", flags.master_address,
                                       "the machine with --node-rank 0 (default 127.0.0.1)");
  auto* const port = run.add_option("--master-port,--master_port", flags.master_port,
                                    "where the ranks meet there (default 29500)");
  auto* const standalone =
      run.add_flag("--standalone", flags.standalone, "one machine, and a free port");
  auto* const endpoint = run.add_option("--rdzv-endpoint,--rdzv_endpoint", flags.rdzv_endpoint,
                                        "HOST:PORT instead of --master-addr and --master-port");
  endpoint->excludes(address)->excludes(port);
  standalone->excludes(address)->excludes(port)->excludes(endpoint);
  run.add_option("--rdzv-backend,--rdzv_backend", flags.rdzv_backend,
                 "static or c10d; both mean the store of rank 0")
      ->check(CLI::IsMember({"static", "c10d"}));
  run.add_option("--rdzv-id,--rdzv_id", flags.rdzv_id, "name of the job, for its logs");
  run.add_option("--max-restarts,--max_restarts", flags.max_restarts,
                 "how often all ranks are started again after a failure")
      ->capture_default_str();
  run.add_option("--monitor-interval,--monitor_interval", flags.monitor_interval,
                 "accepted for torchrun's sake: failures are noticed at once");
  run.add_option("--shutdown-timeout,--shutdown_timeout", flags.shutdown_timeout,
                 "seconds between SIGTERM and SIGKILL")
      ->capture_default_str();
  run.add_option("--log-dir,--log_dir", flags.log_dir,
                 "folder for logs: DIR/ID_x/attempt_N/LOCAL_RANK/{stdout,stderr}.log");
  run.add_option("-r,--redirects", flags.redirects,
                 "streams that go to logs only: 0 none, 1 stdout, 2 stderr, 3 both, or 0:3,1:2");
  run.add_option("-t,--tee", flags.tee, "streams that go to logs and console, in the same words");
  run.add_option("--local-ranks-filter,--local_ranks_filter", flags.local_ranks_filter,
                 "only these local ranks on the console: 0,2");
  run.add_option("--role", flags.role, "accepted for torchrun's sake: passed on as ROLE_NAME");
  run.add_option(
         "--bind-to,--bind_to", flags.bind_to,
         "core: ranks have cores of their own, where there are enough; none: all share them")
      ->check(CLI::IsMember({"core", "none"}))
      ->capture_default_str();
  run.add_flag("--no-python,--no_python", flags.no_python,
               "accepted for torchrun's sake: the program is always started as it is");
}

}  // namespace

std::size_t find_program_to_run(const CommandLine& command) {
  if (command.size() < 2 || command[1] != kName) return command.size();
  std::size_t i = 2;
  while (i < command.size() && command[i] != "--" && command[i].starts_with('-')) {
    const bool has_value_inside = command[i].find('=') != std::string::npos;
    const bool stands_alone = std::ranges::count(kFlagsWithoutValue, command[i]) > 0;
    i += has_value_inside || stands_alone ? 1 : 2;
  }
  return std::min(i, command.size());
}

void add_run_command(CLI::App& app, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand(kName, "Start a program as the ranks of one job");
  add_torchruns_flags(*run, *flags);
  run->footer(
      "Then: -- PROGRAM ARGUMENTS. Example: lockstep run --nproc-per-node 4 -- lockstep train "
      "--parallel ddp\nSeveral machines, on each: lockstep run --nnodes 2 --node-rank 0 "
      "--master-addr HOST --nproc-per-node 4 -- ...");
  std::size_t program = find_program_to_run(command);
  if (program < command.size() && command[program] == "--") ++program;
  const CommandLine job(command.begin() + static_cast<std::ptrdiff_t>(program), command.end());
  run->callback([flags, job, &exit_code] { exit_code = run_group(*flags, job); });
}

}  // namespace lockstep::tools
