#include "tools/run/group_options.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/rank_environment.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/numbers.h"
#include "tools/run/stream_flags.h"

namespace lockstep::tools {
namespace {

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

// "host:29500", "[::1]:29500", or a host alone.
Endpoint parse_endpoint(std::string_view flag, std::string_view text) {
  Endpoint endpoint;
  const bool has_brackets = text.starts_with('[');
  const std::size_t bracket = text.find(']');
  const std::size_t colon = has_brackets ? text.find(':', bracket) : text.find_last_of(':');
  const bool is_bare_ipv6 = !has_brackets && text.find(':') != colon;  // has more than one colon
  const std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  bool is_valid = true;
  if (!is_bare_ipv6 && colon != std::string_view::npos) {
    const auto [rest, problem] =
        std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    is_valid = problem == std::errc{} && rest == port.data() + port.size();
  }
  endpoint.host = is_bare_ipv6 ? text : text.substr(0, colon);
  if (has_brackets) {
    is_valid = is_valid && bracket != std::string_view::npos &&
               (colon == bracket + 1 || bracket + 1 == text.size());
    endpoint.host = text.substr(1, bracket - 1);
  }
  require(is_valid && !endpoint.host.empty() && endpoint.port >= 0 && endpoint.port <= 65535,
          ErrorCode::Usage, flag,
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
