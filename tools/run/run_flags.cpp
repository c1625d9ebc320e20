#include "tools/run/run_flags.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <regex>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/rank_environment.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/commands.h"

namespace lockstep::tools {
namespace {

// The flags of `run` that take no value; all others do.
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

void add_run_flags(CLI::App& command, RunFlags& flags) {
  command.add_option("--nnodes", flags.nnodes, "machines; each starts its own `lockstep run`");
  command.add_option("--nproc-per-node,--nproc_per_node", flags.nproc_per_node,
                     "ranks on this machine: a number, gpu, cpu or auto");
  command.add_option("--node-rank,--node_rank", flags.node_rank, "which of the machines this is");
  CLI::Option* const address =
      command.add_option("--master-addr,--master_addr", flags.master_address,
                         "the machine with --node-rank 0 (default 127.0.0.1)");
  CLI::Option* const port = command.add_option("--master-port,--master_port", flags.master_port,
                                               "port where the ranks meet (default 29500)");
  CLI::Option* const standalone =
      command.add_flag("--standalone", flags.standalone, "one machine, and a free port");
  CLI::Option* const endpoint =
      command.add_option("--rdzv-endpoint,--rdzv_endpoint", flags.rdzv_endpoint,
                         "HOST:PORT instead of --master-addr and --master-port");
  endpoint->excludes(address)->excludes(port);
  standalone->excludes(address)->excludes(port)->excludes(endpoint);
  command
      .add_option("--rdzv-backend,--rdzv_backend", flags.rdzv_backend,
                  "static or c10d; both mean the store of rank 0")
      ->check(one_of({"static", "c10d"}));
  command.add_option("--rdzv-id,--rdzv_id", flags.rdzv_id, "name of the job, for its logs");
  command.add_option("--max-restarts,--max_restarts", flags.max_restarts,
                     "how often all ranks are started again after a failure");
  command.add_option("--monitor-interval,--monitor_interval", flags.monitor_interval,
                     "accepted for compatibility with torchrun: failures are noticed at once");
  command.add_option("--shutdown-timeout,--shutdown_timeout", flags.shutdown_timeout,
                     "seconds between SIGTERM and SIGKILL");
  command.add_option("--log-dir,--log_dir", flags.log_dir,
                     "folder for logs: DIR/ID_x/attempt_N/LOCAL_RANK/{stdout,stderr}.log");
  command.add_option(
      "-r,--redirects", flags.redirects,
      "streams that go to logs only: 0 none, 1 stdout, 2 stderr, 3 both, or 0:3,1:2");
  command.add_option("-t,--tee", flags.tee,
                     "streams that go to logs and console (values as for --redirects)");
  command.add_option("--local-ranks-filter,--local_ranks_filter", flags.local_ranks_filter,
                     "only these local ranks on the console: 0,2");
  command.add_option("--role", flags.role,
                     "accepted for compatibility with torchrun: passed on as ROLE_NAME");
  command
      .add_option("--bind-to,--bind_to", flags.bind_to,
                  "core: ranks have cores of their own, if there are enough; none: all share them")
      ->check(one_of({"core", "none"}));
  command.add_flag(
      "--no-python,--no_python", flags.no_python,
      "accepted for compatibility with torchrun: the program is always started as it is");
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

namespace {

using launch::Streams;

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

}  // namespace

void set_streams(launch::LaunchOptions& options, const RunFlags& flags) {
  const int num_ranks = options.num_ranks;
  options.redirects = parse_streams("--redirects", flags.redirects, num_ranks);
  options.tee = parse_streams("--tee", flags.tee, num_ranks);
  // A folder for logs, without a word about what goes there, gets both streams, and the console
  // too.
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

bool has_logs(const launch::LaunchOptions& options) {
  const auto is_any = [](Streams streams) { return streams != Streams::none; };
  return std::ranges::any_of(options.redirects, is_any) || std::ranges::any_of(options.tee, is_any);
}

std::string make_log_folder(const RunFlags& flags) {
  const std::string base = flags.log_dir.empty() ? "/tmp" : flags.log_dir;
  std::error_code problem;
  std::filesystem::create_directories(base, problem);
  std::string folder =
      fmt::format("{}/{}_XXXXXX", base, flags.log_dir.empty() ? "lockstep" : flags.rdzv_id);
  const bool is_made = !problem && ::mkdtemp(folder.data()) != nullptr;
  require(is_made, ErrorCode::Io, "--log-dir", "cannot make a folder in {}: {}", base,
          problem ? problem.message() : std::generic_category().message(errno));
  return folder;
}

namespace {

// "1", or torchrun's "1:1". Elastic jobs, whose ranks come and go, are not supported.
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

int parse_num_ranks(const std::string& text) {
  const int num_cores = static_cast<int>(runtime::num_cores());
  if (text == "cpu") return num_cores;
  if (text == "gpu" || text == "auto") {
    const int num_gpus = runtime::num_devices(DeviceType::cuda);
    require(num_gpus > 0 || text == "auto", ErrorCode::Device, "--nproc-per-node",
            "'gpu' means one rank for each CUDA device, and this program sees none; say a number, "
            "or cpu");
    return num_gpus > 0 ? num_gpus : num_cores;
  }
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  const std::vector<std::size_t> numbers =
      is_number ? parse_list("--nproc-per-node", text) : std::vector<std::size_t>{0};
  require(numbers[0] >= 1 && numbers[0] <= launch::kMaxWorldSize, ErrorCode::Usage,
          "--nproc-per-node", "expected 1 to {} ranks, gpu, cpu or auto, found '{}'",
          launch::kMaxWorldSize, text);
  return static_cast<int>(numbers[0]);
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

void set_nodes(launch::LaunchOptions& options, const RunFlags& flags) {
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

void set_master(launch::LaunchOptions& options, const RunFlags& flags) {
  options.master_port = flags.master_port.value_or(launch::kDefaultMasterPort);
  require(options.master_port >= 1 && options.master_port <= 65535, ErrorCode::Usage,
          "--master-port", "expected a port from 1 to 65535, found {}", options.master_port);
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

}  // namespace

launch::LaunchOptions group_options(const RunFlags& flags, const CommandLine& command) {
  launch::LaunchOptions options;
  options.command = command;
  options.environment = launch::current_environment();
  set_nodes(options, flags);
  set_master(options, flags);
  set_streams(options, flags);
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
  return options;
}

}  // namespace lockstep::tools
