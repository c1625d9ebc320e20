#include "engine/comm/process_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/comm/process_transports.h"
#include "engine/comm/store/hello.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {
namespace {

std::string key_of(const ProcessGroupOptions& options, std::string_view what) {
  return fmt::format("group/{}/{}", options.group, what);
}

// Tells the others this rank's host; returns the hosts of all ranks.
std::vector<std::string> exchange_hosts(const ProcessGroupOptions& options) {
  Store& store = *options.store;
  const auto key = [&](int rank) { return key_of(options, fmt::format("host/{}", rank)); };
  store.set(key(options.rank), options.host.empty() ? host_identity() : options.host);
  store.barrier(fmt::format("process group {}", options.group), options.rank, options.world_size,
                options.timeout_seconds);
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

void require_one_host(const std::vector<std::string>& names, const std::vector<int>& hosts) {
  const auto other = std::ranges::find_if(hosts, [](int host) { return host != 0; });
  if (other == hosts.end()) return;
  const auto rank = static_cast<std::size_t>(other - hosts.begin());
  const std::string first = host_name_of(names[0]);
  const std::string second = host_name_of(names[rank]);
  fail(ErrorCode::Comm, "process group",
       "shared memory needs all ranks on one host, found rank 0 on {} and rank {} on {}{}; use "
       "the automatic transport or TCP",
       first, rank, second, first == second ? " in other namespaces or as another user" : "");
}

std::unique_ptr<Transport> connect(const ProcessGroupOptions& options) {
  const std::vector<std::string> names = exchange_hosts(options);
  const std::vector<int> hosts = number_hosts(names);
  std::vector<int> others;     // all ranks but this one
  std::vector<int> here;       // on this host
  std::vector<int> elsewhere;  // on other hosts
  for (int rank = 0; rank < options.world_size; ++rank) {
    const bool is_here =
        hosts[static_cast<std::size_t>(rank)] == hosts[static_cast<std::size_t>(options.rank)];
    (is_here ? here : elsewhere).push_back(rank);
    if (rank != options.rank) others.push_back(rank);
  }
  if (options.transport == TransportChoice::tcp) {
    return tcp_transport(options, others, here.size());
  }
  if (options.transport == TransportChoice::shm) require_one_host(names, hosts);
  std::string why_not;
  auto to_host = shm_transport(options, here, why_not);
  if (to_host == nullptr) {
    require(options.transport != TransportChoice::shm, ErrorCode::Comm, "shared memory", "{}",
            why_not);
    if (options.rank == 0) log_warning("no shared memory, so ranks use TCP: {}", why_not);
    return tcp_transport(options, others, here.size());
  }
  if (elsewhere.empty()) return to_host;
  return shm_and_tcp(hosts, std::move(to_host), tcp_transport(options, elsewhere, here.size()));
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

TransportChoice parse_transport_choice(std::string_view name) {
  if (name == "auto") return TransportChoice::automatic;
  if (name == "shm") return TransportChoice::shm;
  if (name == "tcp") return TransportChoice::tcp;
  fail(ErrorCode::Usage, "transport", "unknown transport '{}'; use one of: auto, shm, tcp", name);
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
    alone.links = fixed_links(options.link);
    return std::move(make_thread_group(1, alone).front());
  }
  require(options.store != nullptr, ErrorCode::Usage, "process group",
          "{} ranks need a store to meet", options.world_size);
  const Links links = fixed_links(options.link);
  std::unique_ptr<Group> rank = connect_or_abort(options);
  auto group = make_plan_communicator(links ? links(std::move(rank)) : std::move(rank));
  group->set_timeout_seconds(options.timeout_seconds);
  group->set_default_plan(options.default_plan);
  if (trace::Observer* observer = trace::observer()) {
    group->set_observed_group(tell_observer(*observer, options));
  }
  return group;
}

}  // namespace lockstep::comm
