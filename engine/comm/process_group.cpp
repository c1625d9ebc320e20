#include "engine/comm/process_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <sstream>

#include "engine/comm/comm_errors.h"
#include "engine/comm/host_identity.h"
#include "engine/comm/plan_communicator.h"
#include "engine/comm/shm_group.h"
#include "engine/comm/tcp_group.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {
namespace {

constexpr std::array<std::string_view, 3> kTransportNames{"auto", "shm", "tcp"};

// Increase it whenever something changes on which the ranks of a group must agree: the layout of
// shared memory, the frames of TCP, CallHeader, RankInfo.
constexpr int kProtocol = 5;

// A rank's facts about itself, which it publishes one per line.
struct RankInfo {
  std::string process;  // "process 4711 on node7"
  std::string time;     // distinguishes two processes that claim one rank, together with `process`
  std::string clock;    // boot_id(): processes with the same one share a clock.
  std::string host;     // host_identity()
  // All ranks must have the same: "world size 4", "transport auto", ...
  std::vector<std::string> settings;
};

RankInfo make_info(const ProcessGroupOptions& options) {
  const std::string host = options.host.empty() ? host_identity() : options.host;
  return {name_of_process(getpid(), host_name_of(host)),
          fmt::format("{}", runtime::Clock::now().time_since_epoch().count()),
          boot_id(),
          host,
          {fmt::format("protocol {}-{}", kProtocol,
                       std::endian::native == std::endian::little ? "little" : "big"),
           fmt::format("world size {}", options.world_size),
           fmt::format("transport {}", to_string(options.transport)),
           "modelled link " + (options.link ? to_string(*options.link) : "none")}};
}

std::string to_text(const RankInfo& info) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n", info.process, info.time, info.clock, info.host,
                     fmt::join(info.settings, "\n"));
}

RankInfo parse_info(const std::string& text) {
  RankInfo info;
  std::istringstream lines(text);
  for (std::string* line : {&info.process, &info.time, &info.clock, &info.host}) {
    std::getline(lines, *line);
  }
  for (std::string line; std::getline(lines, line);) info.settings.push_back(line);
  return info;
}

std::string key_of(const ProcessGroupOptions& options, std::string_view what) {
  return fmt::format("group/{}/{}", options.group, what);
}

std::string info_key(const ProcessGroupOptions& options, int rank) {
  return key_of(options, fmt::format("info/{}", rank));
}

// Under this key, a host's first rank publishes its segment.
std::string segment_key(const ProcessGroupOptions& options, int first_rank) {
  return key_of(options, fmt::format("segment/{}", first_rank));
}

void publish_info(const ProcessGroupOptions& options) {
  const std::string text = to_text(make_info(options));
  const std::string published = options.store->set_if_absent(info_key(options, options.rank), text);
  require(published == text, ErrorCode::Comm, "process group",
          "rank {} is taken by {}, so {} cannot be it too; give each process its own RANK, and "
          "groups that use one store names of their own",
          options.rank, parse_info(published).process, name_of_this_process());
}

std::vector<RankInfo> wait_for_infos(const ProcessGroupOptions& options) {
  const runtime::Deadline deadline = runtime::deadline_after(options.timeout_seconds);
  std::vector<RankInfo> infos;
  std::string missing;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const auto text = options.store->find(info_key(options, rank), deadline);
    if (text) infos.push_back(parse_info(*text));
    if (!text) add_to_list(missing, fmt::format("rank {}", rank));
  }
  require(missing.empty(), ErrorCode::Timeout, "process group",
          "rank {} waited {} s for {} of {} ranks to come; start them, or correct WORLD_SIZE",
          options.rank, options.timeout_seconds, missing, options.world_size);
  return infos;
}

// Ends the rendezvous of all ranks if two of them differ.
void require_agreement(const ProcessGroupOptions& options, const std::vector<RankInfo>& infos) {
  const auto refuse = [&](const std::string& why) {
    const Error error(ErrorCode::Comm, "process group", why);
    options.store->abort(error);
    throw error;
  };
  const RankInfo& first = infos.front();
  for (std::size_t r = 1; r < infos.size(); ++r) {
    const RankInfo& info = infos[r];
    const auto [theirs, ours] = std::ranges::mismatch(info.settings, first.settings);
    if (theirs != info.settings.end() && ours != first.settings.end()) {
      refuse(fmt::format("rank {} ({}) has {} while rank 0 ({}) has {}; start all ranks alike", r,
                         info.process, *theirs, first.process, *ours));
    }
    if (options.link && info.clock != first.clock) {
      refuse(
          fmt::format("rank 0 ({}) and rank {} ({}) are on two machines, and a modelled link "
                      "needs the clock that processes of one machine share; leave the link out",
                      first.process, r, info.process));
    }
  }
}

// hosts[r]: 0, 1, ... in the order of the hosts' first ranks.
std::vector<int> number_hosts(const std::vector<RankInfo>& infos) {
  std::vector<std::string> known;
  std::vector<int> hosts;
  for (const RankInfo& info : infos) {
    const auto found = std::ranges::find(known, info.host);
    hosts.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(info.host);
  }
  return hosts;
}

// The ranks that are on the host of `rank`, in rising order.
std::vector<int> ranks_on_host_of(int rank, const std::vector<int>& hosts) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] == hosts[static_cast<std::size_t>(rank)]) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

void require_one_host(const std::vector<RankInfo>& infos, const std::vector<int>& hosts) {
  const auto other = std::ranges::find_if(hosts, [](int host) { return host != 0; });
  if (other == hosts.end()) return;
  const auto rank = static_cast<std::size_t>(other - hosts.begin());
  const std::string first = host_name_of(infos[0].host);
  const std::string second = host_name_of(infos[rank].host);
  fail(ErrorCode::Comm, "process group",
       "--transport shm needs all ranks on one host, found rank 0 on {} and rank {} on {}{}; use "
       "--transport auto or tcp",
       first, rank, second, first == second ? " in other namespaces or as another user" : "");
}

ShmSegment meet_in_segment(const ProcessGroupOptions& options, const std::vector<int>& ranks) {
  const std::size_t num_bytes = ShmTransport::segment_bytes(static_cast<int>(ranks.size()));
  const std::string key = segment_key(options, ranks.front());
  if (options.rank == ranks.front()) {
    ShmSegment segment = ShmSegment::create(num_bytes);
    options.store->set(key, segment.address());
    return segment;
  }
  const std::string address =
      options.store->get(key, runtime::deadline_after(options.timeout_seconds));
  return ShmSegment::open(address, num_bytes, fmt::format("rank {}", ranks.front()));
}

std::unique_ptr<ShmTransport> shm_transport(const ProcessGroupOptions& options,
                                            const std::vector<int>& ranks) {
  ShmTransportOptions shm_options;
  shm_options.ranks = ranks;
  shm_options.index = static_cast<int>(std::ranges::find(ranks, options.rank) - ranks.begin());
  shm_options.timeout_seconds = options.timeout_seconds;
  // Any request will do: after an abort, for example because a rank died, all of them throw.
  shm_options.throw_if_hopeless = [&] { options.store->try_get(segment_key(options, 0)); };
  try {
    return std::make_unique<ShmTransport>(meet_in_segment(options, ranks), shm_options);
  } catch (const Error& error) {
    // The others wait for this rank in the segment or in the store.
    options.store->abort(
        Error(ErrorCode::Comm, "store", fmt::format("rank {}: {}", options.rank, error.what())));
    throw;
  }
}

// peers: the ranks to connect to; empty: all.
std::unique_ptr<Transport> tcp_transport(const ProcessGroupOptions& options, std::vector<int> peers,
                                         std::size_t num_local_ranks) {
  TcpTransportOptions tcp_options;
  tcp_options.rank = options.rank;
  tcp_options.world_size = options.world_size;
  tcp_options.token = options.token;
  tcp_options.group = options.group;
  tcp_options.address = options.address;
  const bool has_own_cores = options.cores == ProcessGroupOptions::Cores::own;
  tcp_options.num_local_ranks = has_own_cores ? 1 : static_cast<int>(num_local_ranks);
  tcp_options.peers = std::move(peers);
  tcp_options.timeout_seconds = options.timeout_seconds;
  return std::make_unique<TcpTransport>(tcp_options, *options.store);
}

std::unique_ptr<Transport> on_several_hosts(const ProcessGroupOptions& options,
                                            const std::vector<int>& hosts,
                                            const std::vector<int>& ranks_here) {
  std::vector<int> elsewhere;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (std::ranges::find(ranks_here, rank) == ranks_here.end()) elsewhere.push_back(rank);
  }
  std::unique_ptr<ShmTransport> to_host = shm_transport(options, ranks_here);
  return shm_and_tcp(hosts, std::move(to_host),
                     tcp_transport(options, elsewhere, ranks_here.size()));
}

std::unique_ptr<Transport> connect(const ProcessGroupOptions& options) {
  publish_info(options);
  const std::vector<RankInfo> infos = wait_for_infos(options);
  require_agreement(options, infos);
  const std::vector<int> hosts = number_hosts(infos);
  const std::vector<int> ranks_here = ranks_on_host_of(options.rank, hosts);
  if (options.transport == TransportChoice::tcp) {
    return tcp_transport(options, {}, ranks_here.size());
  }
  if (options.transport == TransportChoice::shm) require_one_host(infos, hosts);
  if (ranks_here.size() == hosts.size()) return shm_transport(options, ranks_here);
  return on_several_hosts(options, hosts, ranks_here);
}

// The ranks agree on a name under which their observers know the group.
std::uint32_t tell_observer(trace::Observer& observer, const ProcessGroupOptions& options) {
  const std::string key = key_of(options, "observed");
  if (options.rank == 0) options.store->set(key, observer.new_group_name());
  return observer.group_made(
      {options.store->get(key, runtime::deadline_after(options.timeout_seconds)),
       options.world_size, options.rank});
}

}  // namespace

std::string_view to_string(TransportChoice choice) {
  return kTransportNames[static_cast<std::size_t>(choice)];
}

TransportChoice parse_transport_choice(std::string_view name) {
  const auto found = std::ranges::find(kTransportNames, name);
  require(found != kTransportNames.end(), ErrorCode::Usage, "transport",
          "unknown transport '{}'; use one of: auto, shm, tcp", name);
  return static_cast<TransportChoice>(found - kTransportNames.begin());
}

std::unique_ptr<Communicator> make_process_group(const ProcessGroupOptions& options) {
  require(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
          ErrorCode::Usage, "process group",
          "the rank must be in 0 ... world size - 1, found rank {} and world size {}", options.rank,
          options.world_size);
  if (options.world_size == 1) {
    ThreadGroupOptions alone;
    alone.timeout_seconds = options.timeout_seconds;
    alone.default_plan = options.default_plan;
    alone.link = options.link;
    return std::move(make_thread_group(1, alone).front());
  }
  require(options.store != nullptr, ErrorCode::Usage, "process group",
          "{} ranks need a store to meet", options.world_size);
  auto group = std::make_unique<PlanCommunicator>(
      connect(options), options.link ? fixed_link(*options.link) : nullptr);
  group->set_timeout_seconds(options.timeout_seconds);
  group->set_default_plan(options.default_plan);
  if (trace::Observer* observer = trace::observer()) {
    group->set_observed_group(tell_observer(*observer, options));
  }
  return group;
}

}  // namespace lockstep::comm
