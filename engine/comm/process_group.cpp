#include "engine/comm/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/audit/rank.h"
#include "engine/audit/switch.h"
#include "engine/comm/host_identity.h"
#include "engine/comm/plan_communicator.h"
#include "engine/comm/rank_taken.h"
#include "engine/comm/roster.h"
#include "engine/comm/thread_group.h"
#include "engine/comm/transport/link/fixed_link.h"
#include "engine/comm/transport/mixed/mixed_transport.h"
#include "engine/comm/transport/shm/shm_transport.h"
#include "engine/comm/transport/tcp/tcp_transport.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

constexpr std::array<std::string_view, 3> kTransportNames{"auto", "shm", "tcp"};

// Of the hosts' first ranks, on which each host's segment depends.
std::string segment_key(const ProcessGroupOptions& options, int first_rank) {
  return fmt::format("group/{}/segment/{}", options.group, first_rank);
}

// The ranks that are on the host of `rank`, in rising order.
std::vector<int> ranks_on_host_of(int rank, const std::vector<int>& hosts) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] == hosts[static_cast<std::size_t>(rank)]) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

void require_one_host(const std::vector<RankCard>& cards, const std::vector<int>& hosts) {
  const auto other = std::ranges::find_if(hosts, [](int host) { return host != 0; });
  if (other == hosts.end()) return;
  const auto rank = static_cast<std::size_t>(other - hosts.begin());
  const std::string first = host_name_of(cards[0].host);
  const std::string second = host_name_of(cards[rank].host);
  fail(ErrorCode::Comm, "process group",
       "--transport shm needs all ranks on one host, found rank 0 on {} and rank {} on {}{}; use "
       "--transport auto or tcp",
       first, rank, second, first == second ? " in other namespaces or as another user" : "");
}

shm::SharedSegment meet_in_segment(const ProcessGroupOptions& options,
                                   const std::vector<int>& ranks) {
  const std::size_t num_bytes = ShmTransport::segment_bytes(static_cast<int>(ranks.size()));
  const std::string key = segment_key(options, ranks.front());
  if (options.rank == ranks.front()) {
    shm::SharedSegment segment = shm::SharedSegment::create(num_bytes);
    options.store->set(key, segment.address());
    return segment;
  }
  const std::string address =
      options.store->get(key, runtime::deadline_after(options.timeout_seconds));
  return shm::SharedSegment::open(address, num_bytes, fmt::format("rank {}", ranks.front()));
}

std::unique_ptr<ShmTransport> shm_transport(const ProcessGroupOptions& options,
                                            const std::vector<int>& ranks) {
  ShmTransportOptions shm_options;
  shm_options.ranks = ranks;
  shm_options.index = static_cast<int>(std::ranges::find(ranks, options.rank) - ranks.begin());
  shm_options.timeout_seconds = options.timeout_seconds;
  // Any request does: after an abort, as when a rank has died, all of them throw.
  shm_options.throw_if_hopeless = [&] { options.store->try_get(segment_key(options, 0)); };
  try {
    return std::make_unique<ShmTransport>(meet_in_segment(options, ranks), shm_options);
  } catch (const RankTaken&) {
    throw;
  } catch (const Error& error) {
    // The others wait for this rank in the segment or in the store.
    options.store->abort(
        Error(ErrorCode::Comm, "store", fmt::format("rank {}: {}", options.rank, error.what())));
    throw;
  }
}

// peers: those to connect to; empty: all.
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

std::unique_ptr<Transport> mixed_transport(const ProcessGroupOptions& options,
                                           const std::vector<int>& hosts,
                                           const std::vector<int>& ranks_here) {
  std::vector<int> elsewhere;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (std::ranges::find(ranks_here, rank) == ranks_here.end()) elsewhere.push_back(rank);
  }
  MixedTransportOptions mixed;
  mixed.hosts = hosts;
  mixed.to_host = shm_transport(options, ranks_here);
  mixed.to_network = tcp_transport(options, elsewhere, ranks_here.size());
  return std::make_unique<MixedTransport>(std::move(mixed));
}

std::unique_ptr<Transport> connect(const ProcessGroupOptions& options) {
  const std::vector<RankCard> cards = exchange_cards(options);
  const std::vector<int> hosts = number_hosts(cards);
  const std::vector<int> ranks_here = ranks_on_host_of(options.rank, hosts);
  if (options.transport == TransportChoice::tcp) {
    return tcp_transport(options, {}, ranks_here.size());
  }
  if (options.transport == TransportChoice::shm) require_one_host(cards, hosts);
  if (ranks_here.size() == hosts.size()) return shm_transport(options, ranks_here);
  return mixed_transport(options, hosts, ranks_here);
}

// The ranks agree on a name under which an audit knows their group.
std::uint32_t name_for_audit(const ProcessGroupOptions& options) {
  const std::string key = fmt::format("group/{}/audit", options.group);
  if (options.rank == 0) options.store->set(key, audit::new_group_name());
  const std::uint32_t group = audit::register_group(
      options.store->get(key, runtime::deadline_after(options.timeout_seconds)),
      options.world_size);
  audit::set_rank_of_process(group, options.rank);
  return group;
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
  std::unique_ptr<PlanCommunicator> group = make_plan_communicator(
      connect(options), options.link ? std::make_unique<FixedLink>(*options.link) : nullptr);
  group->set_timeout_seconds(options.timeout_seconds);
  group->set_default_plan(options.default_plan);
  if (audit::is_on()) group->set_audit_group(name_for_audit(options));
  return group;
}

}  // namespace lockstep::comm
