#include "engine/comm/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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

std::string key_of(const ProcessGroupOptions& options, std::string_view what) {
  return fmt::format("group/{}/{}", options.group, what);
}

// Under this key, a host's first rank publishes its segment.
std::string segment_key(const ProcessGroupOptions& options, int first_rank) {
  return key_of(options, fmt::format("segment/{}", first_rank));
}

// Returns when all ranks have called it with this name.
void wait_for_all(const ProcessGroupOptions& options, std::string_view what) {
  options.store->barrier(fmt::format("{} {}", what, options.group), options.rank,
                         options.world_size, options.timeout_seconds);
}

// Tells the others this rank's host; returns the hosts of all ranks.
std::vector<std::string> exchange_hosts(const ProcessGroupOptions& options) {
  Store& store = *options.store;
  const auto key = [&](int rank) { return key_of(options, fmt::format("host/{}", rank)); };
  store.set(key(options.rank), options.host.empty() ? host_identity() : options.host);
  if (options.link) {
    const std::string clock = boot_id();
    require(store.set_if_absent(key_of(options, "clock"), clock) == clock, ErrorCode::Comm,
            "process group",
            "the ranks are on several machines, and a modelled link needs the clock that processes "
            "of one machine share; leave the link out");
  }
  wait_for_all(options, "process group");
  std::vector<std::string> hosts;
  for (int rank = 0; rank < options.world_size; ++rank) {
    hosts.push_back(store.try_get(key(rank)).value_or(""));
  }
  return hosts;
}

// hosts[r]: 0, 1, ... in the order of the hosts' first ranks.
std::vector<int> number_hosts(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  std::vector<int> hosts;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(known, name);
    hosts.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(name);
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

void require_one_host(const std::vector<std::string>& names, const std::vector<int>& hosts) {
  const auto other = std::ranges::find_if(hosts, [](int host) { return host != 0; });
  if (other == hosts.end()) return;
  const auto rank = static_cast<std::size_t>(other - hosts.begin());
  const std::string first = host_name_of(names[0]);
  const std::string second = host_name_of(names[rank]);
  fail(ErrorCode::Comm, "process group",
       "--transport shm needs all ranks on one host, found rank 0 on {} and rank {} on {}{}; use "
       "--transport auto or tcp",
       first, rank, second, first == second ? " in other namespaces or as another user" : "");
}

ShmSegment share_segment(const ProcessGroupOptions& options, const std::vector<int>& ranks) {
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
  shm_options.wait_for_all = [&] { wait_for_all(options, "shared memory"); };
  return std::make_unique<ShmTransport>(share_segment(options, ranks), shm_options);
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
  const std::vector<std::string> names = exchange_hosts(options);
  const std::vector<int> hosts = number_hosts(names);
  const std::vector<int> ranks_here = ranks_on_host_of(options.rank, hosts);
  if (options.transport == TransportChoice::tcp) {
    return tcp_transport(options, {}, ranks_here.size());
  }
  if (options.transport == TransportChoice::shm) require_one_host(names, hosts);
  if (ranks_here.size() == hosts.size()) return shm_transport(options, ranks_here);
  return on_several_hosts(options, hosts, ranks_here);
}

// Tells the ranks that wait for this one why it does not come.
void abort_meeting(const ProcessGroupOptions& options, const Error& why) noexcept {
  try {
    options.store->abort(Error(ErrorCode::Comm, "process group",
                               fmt::format("rank {}: {}", options.rank, why.what())));
  } catch (const Error&) {
    // The store is gone: no rank is left to hear it.
  }
}

std::unique_ptr<Transport> connect_or_abort(const ProcessGroupOptions& options) {
  try {
    return connect(options);
  } catch (const Error& error) {
    abort_meeting(options, error);
    throw;
  }
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
      connect_or_abort(options), options.link ? fixed_link(*options.link) : nullptr);
  group->set_timeout_seconds(options.timeout_seconds);
  group->set_default_plan(options.default_plan);
  if (trace::Observer* observer = trace::observer()) {
    group->set_observed_group(tell_observer(*observer, options));
  }
  return group;
}

}  // namespace lockstep::comm
