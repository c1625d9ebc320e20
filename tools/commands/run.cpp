// lockstep run [flags] -- PROGRAM ARGUMENTS: starts the ranks of a job on this machine, with
// torchrun's flags and environment variables. Each flag is also spelled with underscores.
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <regex>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/launch/process.h"
#include "engine/launch/rank_environment.h"
#include "engine/launch/rendezvous.h"
#include "engine/runtime/logical_device.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/numbers.h"

namespace lockstep::tools {
namespace {

using launch::LaunchOptions;
using launch::Streams;

// The flags of `run` that take no value; all others do.
constexpr std::array<std::string_view, 5> kFlagsWithoutValue = {"--standalone", "--no-python",
                                                                "--no_python", "--help", "-h"};

constexpr int kMostRestarts = 1000000;

// The flags whose words need more reading than CLI11's.
struct RunFlags {
  LaunchOptions options;  // from flags that are options as they stand
  std::string nnodes = "1";
  std::string nproc_per_node = "1";
  std::optional<int> node_rank;
  std::string master_address;
  std::optional<int> master_port;
  bool standalone = false;
  std::string rdzv_endpoint;
  std::string rdzv_backend = "static";
  double monitor_interval = 0.1;
  std::string log_dir;
  std::string redirects;
  std::string tee;
  std::string local_ranks_filter;
  bool no_python = false;
  std::string bind_to = "core";
};

// nullopt if the text is anything but an int.
std::optional<int> as_int(const std::string& text) {
  int number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

// torchrun's variables, as the defaults of flags.
void read_variables(RunFlags& flags) {
  const launch::Environment environment = launch::current_environment();
  for (const auto& [name, value] : {std::pair("PET_NNODES", &flags.nnodes),
                                    {"PET_NPROC_PER_NODE", &flags.nproc_per_node},
                                    {"PET_MASTER_ADDR", &flags.master_address},
                                    {"PET_RDZV_ENDPOINT", &flags.rdzv_endpoint},
                                    {"PET_RDZV_ID", &flags.options.run_id},
                                    {"PET_LOG_DIR", &flags.log_dir}}) {
    *value = launch::find_variable(environment, name).value_or(*value);
  }
  const auto number = [&](const char* name, int least, int most, auto& value) {
    const auto text = launch::find_variable(environment, name);
    if (!text) return;
    const std::optional<int> found = as_int(*text);
    require(found && *found >= least && *found <= most, ErrorCode::Usage, name,
            "expected a number from {} to {} in this environment variable, found '{}'", least, most,
            *text);
    value = *found;
  };
  number("PET_NODE_RANK", 0, launch::kMaxWorldSize, flags.node_rank);
  number("PET_MASTER_PORT", 1, 65535, flags.master_port);
  number("PET_MAX_RESTARTS", 0, kMostRestarts, flags.options.max_restarts);
  number("PET_STANDALONE", 0, 1, flags.standalone);
}

// flags must live as long as run.
void add_run_flags(CLI::App& run, RunFlags& flags) {
  add_option(run, "--nnodes", flags.nnodes, "N",
             "how many machines; each starts its own `lockstep run`");
  add_option(run, "--nproc-per-node,--nproc_per_node", flags.nproc_per_node, "N|gpu|cpu|auto",
             "ranks on this machine; gpu: one for each GPU, cpu: one for each core, auto: gpu "
             "if there are GPUs, else cpu");
  run.add_option("--node-rank,--node_rank", flags.node_rank, "which of the machines this is");
  CLI::Option* const address =
      add_option(run, "--master-addr,--master_addr", flags.master_address, "HOST",
                 "the machine with --node-rank 0 (default: 127.0.0.1)");
  CLI::Option* const port = run.add_option("--master-port,--master_port", flags.master_port,
                                           "port where the ranks meet (default: 29500)")
                                ->check(CLI::Range(1, 65535));
  CLI::Option* const standalone =
      run.add_flag("--standalone", flags.standalone, "one machine, and any free port");
  CLI::Option* const endpoint =
      add_option(run, "--rdzv-endpoint,--rdzv_endpoint", flags.rdzv_endpoint, "HOST:PORT",
                 "instead of --master-addr and --master-port");
  endpoint->excludes(address)->excludes(port);
  standalone->excludes(address)->excludes(port)->excludes(endpoint);
  run.add_option("--rdzv-backend,--rdzv_backend", flags.rdzv_backend,
                 "the ranks always meet at rank 0's store")
      ->check(one_of({"static", "c10d"}));
  add_option(run, "--rdzv-id,--rdzv_id", flags.options.run_id, "NAME",
             "name of the job, for its logs");
  run.add_option("--max-restarts,--max_restarts", flags.options.max_restarts,
                 "how often to start all ranks again after a failure")
      ->check(CLI::Range(0, kMostRestarts));
  run.add_option("--monitor-interval,--monitor_interval", flags.monitor_interval,
                 "failures are noticed at once")
      ->default_str("");
  run.add_option("--shutdown-timeout,--shutdown_timeout", flags.options.shutdown_seconds,
                 "seconds between SIGTERM and SIGKILL");
  add_option(run, "--log-dir,--log_dir", flags.log_dir, "FOLDER",
             "folder for logs: FOLDER/NAME_x/attempt_N/LOCAL_RANK/{stdout,stderr}.log");
  add_option(run, "-r,--redirects", flags.redirects, "STREAMS",
             "streams that go to logs only, in the words of --tee");
  add_option(run, "-t,--tee", flags.tee, "STREAMS",
             "streams that go to logs and to the console: 0 none, 1 stdout, 2 stderr, 3 both; "
             "0:3,1:2 says it for each local rank");
  add_option(run, "--local-ranks-filter,--local_ranks_filter", flags.local_ranks_filter, "RANKS",
             "show only these local ranks on the console, as in 0,2");
  add_option(run, "--role", flags.options.role, "NAME",
             "name of the ranks' role, which they find in ROLE_NAME");
  run.add_option("--bind-to,--bind_to", flags.bind_to,
                 "core: each rank has cores of its own, if there are enough; none: all share them")
      ->check(one_of({"core", "none"}));
  run.add_flag("--no-python,--no_python", flags.no_python,
               "the program is always started as it is");
  group_flags(run,
              {{"Most used",
                {"--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port",
                 "--standalone", "--max-restarts", "--log-dir", "--tee", "--bind-to"}},
               {"Where the ranks meet", {"--rdzv-endpoint", "--rdzv-id", "--role"}},
               {"How they end", {"--shutdown-timeout"}},
               {"What to write", {"--redirects", "--local-ranks-filter"}},
               {"Taken from torchrun, without effect",
                {"--rdzv-backend", "--monitor-interval", "--no-python"}}});
}

Streams parse_stream(const char* flag, std::string_view text) {
  require(text.size() == 1 && text[0] >= '0' && text[0] <= '3', ErrorCode::Usage, flag,
          "expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a list as in 0:3,1:2 (local "
          "rank:streams), found '{}'",
          text);
  return static_cast<Streams>(text[0] - '0');
}

// "3" for all ranks, or "0:3,1:2" for some.
std::vector<Streams> parse_streams(const char* flag, const std::string& text, int num_ranks) {
  if (text.find(':') == std::string::npos) {
    const Streams streams = text.empty() ? Streams::none : parse_stream(flag, text);
    return std::vector<Streams>(static_cast<std::size_t>(num_ranks), streams);
  }
  std::vector<Streams> result(static_cast<std::size_t>(num_ranks), Streams::none);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    const std::vector<std::size_t> ranks = parse_list(flag, entry.substr(0, colon));
    require(ranks.size() == 1 && ranks[0] < result.size(), ErrorCode::Usage, flag,
            "expected local ranks below {}, found '{}'", num_ranks, entry);
    result[ranks[0]] =
        parse_stream(flag, std::string_view(entry).substr(std::min(colon + 1, entry.size())));
    begin = end + 1;
  }
  return result;
}

void set_streams(LaunchOptions& options, const RunFlags& flags) {
  const int num_ranks = options.num_ranks;
  options.redirects = parse_streams("--redirects", flags.redirects, num_ranks);
  options.tee = parse_streams("--tee", flags.tee, num_ranks);
  // A folder for logs gets both streams, like the console, if no flag says what goes there.
  if (!flags.log_dir.empty() && flags.redirects.empty() && flags.tee.empty()) {
    options.tee = parse_streams("--tee", "3", num_ranks);
  }
  if (!flags.local_ranks_filter.empty()) {
    for (const std::size_t rank : parse_list("--local-ranks-filter", flags.local_ranks_filter)) {
      require(rank < static_cast<std::size_t>(num_ranks), ErrorCode::Usage, "--local-ranks-filter",
              "expected local ranks below {}, found {}", num_ranks, rank);
      options.console_filter.push_back(static_cast<int>(rank));
    }
  }
}

bool has_logs(const LaunchOptions& options) {
  const auto is_any = [](Streams streams) { return streams != Streams::none; };
  return std::ranges::any_of(options.redirects, is_any) || std::ranges::any_of(options.tee, is_any);
}

std::string make_log_folder(const RunFlags& flags) {
  const std::string base = flags.log_dir.empty() ? "/tmp" : flags.log_dir;
  std::error_code problem;
  std::filesystem::create_directories(base, problem);
  std::string folder =
      fmt::format("{}/{}_XXXXXX", base, flags.log_dir.empty() ? "lockstep" : flags.options.run_id);
  const bool is_made = !problem && ::mkdtemp(folder.data()) != nullptr;
  require(is_made, ErrorCode::Io, "--log-dir", "cannot make a folder in {}: {}", base,
          problem ? problem.message() : std::generic_category().message(errno));
  return folder;
}

// what: such as "machines".
int parse_count(const char* flag, const std::string& text, const char* what) {
  const std::optional<int> number = as_int(text);
  require(number && *number >= 1 && *number <= launch::kMaxWorldSize, ErrorCode::Usage, flag,
          "expected 1 to {} {}, found '{}'", launch::kMaxWorldSize, what, text);
  return *number;
}

// "1", or torchrun's "1:1". Elastic jobs, whose ranks come and go, are not supported.
int parse_num_nodes(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string low = text.substr(0, colon);
  require(colon == std::string::npos || text.substr(colon + 1) == low, ErrorCode::Usage, "--nnodes",
          "expected one number of machines, found '{}'; a job keeps its size", text);
  return parse_count("--nnodes", low, "machines");
}

int parse_num_ranks(const std::string& text) {
  const int num_cores = static_cast<int>(runtime::num_cores());
  if (text == "cpu") return num_cores;
  if (text != "gpu" && text != "auto") {
    return parse_count("--nproc-per-node", text, "ranks, gpu, cpu or auto");
  }
  const int num_gpus = runtime::num_devices(DeviceType::cuda);
  require(num_gpus > 0 || text == "auto", ErrorCode::Device, "--nproc-per-node",
          "'gpu' means one rank for each CUDA device, and this program sees none; say a number, "
          "or cpu");
  return num_gpus > 0 ? num_gpus : num_cores;
}

struct Endpoint {
  std::string host;
  int port = launch::kDefaultMasterPort;
};

// "host:29500", "[::1]:29500", or a host alone, such as ::1.
Endpoint parse_endpoint(std::string_view flag, const std::string& text) {
  static const std::regex host_and_port(R"((?:\[([^\]]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?)");
  static const std::regex bare_ipv6("[0-9a-fA-F:.]+");
  std::smatch parts;
  Endpoint endpoint;
  if (std::regex_match(text, parts, host_and_port)) {
    endpoint.host = parts[1].matched ? parts[1] : parts[2];
    if (parts[3].matched) endpoint.port = std::stoi(parts[3]);
  } else if (std::regex_match(text, bare_ipv6)) {
    endpoint.host = text;
  }
  require(!endpoint.host.empty() && endpoint.port <= 65535, ErrorCode::Usage, flag,
          "expected HOST:PORT or [IPv6]:PORT with a port from 0 (a free one) to 65535, found '{}'",
          text);
  return endpoint;
}

void set_nodes(LaunchOptions& options, const RunFlags& flags) {
  options.num_nodes = parse_num_nodes(flags.nnodes);
  options.num_ranks = parse_num_ranks(flags.nproc_per_node);
  require(options.num_nodes * options.num_ranks <= launch::kMaxWorldSize, ErrorCode::Usage, "run",
          "{} ranks on each of {} machines are more than {}", options.num_ranks, options.num_nodes,
          launch::kMaxWorldSize);
  require(flags.node_rank || options.num_nodes == 1, ErrorCode::Usage, "--node-rank",
          "with {} machines, say which one this is: --node-rank 0 to {}", options.num_nodes,
          options.num_nodes - 1);
  options.node_rank = flags.node_rank.value_or(0);
  require(options.node_rank >= 0 && options.node_rank < options.num_nodes, ErrorCode::Usage,
          "--node-rank", "expected 0 to {}, found {}", options.num_nodes - 1, options.node_rank);
}

void set_master(LaunchOptions& options, const RunFlags& flags) {
  options.master_port = flags.master_port.value_or(launch::kDefaultMasterPort);
  if (!flags.master_address.empty()) options.master_address = flags.master_address;
  if (!flags.rdzv_endpoint.empty()) {
    const Endpoint endpoint = parse_endpoint("--rdzv-endpoint", flags.rdzv_endpoint);
    options.master_address = endpoint.host;
    options.master_port = endpoint.port;
  }
  if (options.num_nodes == 1) return;
  require(options.master_port != 0, ErrorCode::Usage, "--rdzv-endpoint",
          "port 0 is a free one, which other machines cannot know; name a port");
  require(!flags.standalone, ErrorCode::Usage, "--standalone",
          "is for one machine; {} machines meet at --master-addr", options.num_nodes);
  require(!flags.master_address.empty() || !flags.rdzv_endpoint.empty(), ErrorCode::Usage,
          "--master-addr", "with {} machines, name the one with --node-rank 0", options.num_nodes);
}

// The port under --standalone, the token and the folder for logs are made when the group starts.
LaunchOptions group_options(const RunFlags& flags, const CommandLine& command) {
  LaunchOptions options = flags.options;
  options.command = command;
  options.environment = launch::current_environment();
  set_nodes(options, flags);
  set_master(options, flags);
  set_streams(options, flags);
  require_positive("--monitor-interval", flags.monitor_interval);
  require_not_negative("--shutdown-timeout", options.shutdown_seconds);
  require(options.run_id.find('/') == std::string::npos, ErrorCode::Usage, "--rdzv-id",
          "names a folder of logs, so it must not hold '/'");
  if (flags.bind_to == "none") options.binding = launch::Binding::none;
  return options;
}

// On one machine the launcher makes the secret. Several launchers cannot agree on one by
// themselves; if all of them run here, the ranks meet on the loopback and need none.
void set_token(LaunchOptions& options) {
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
  LaunchOptions options = group_options(flags, command);
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

void add_run_command(CLI::App& parent, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App& run = *parent.add_subcommand("run", "Start a program once per rank, as torchrun does");
  if (command.size() > 1 && command[1] == "run") read_variables(*flags);
  add_run_flags(run, *flags);
  run.footer(
      "Then comes -- and the program with its arguments. The ranks' standard input is empty. Flags "
      "may be spelled with underscores, as torchrun's are.\n\n"
      "On one machine:\n"
      "  lockstep run --nproc-per-node 4 -- lockstep train --parallel ddp\n"
      "On each of two, with --node-rank 1 on the second:\n"
      "  lockstep run --nnodes 2 --node-rank 0 --master-addr HOST -- PROGRAM");
  std::size_t program = find_program_to_run(command);
  if (program < command.size() && command[program] == "--") ++program;
  const CommandLine job(command.begin() + static_cast<std::ptrdiff_t>(program), command.end());
  run.callback([flags, job, &exit_code] { exit_code = run_group(*flags, job); });
}

}  // namespace lockstep::tools
