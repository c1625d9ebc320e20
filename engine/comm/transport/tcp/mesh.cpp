#include "engine/comm/transport/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "engine/comm/comm_errors.h"
#include "engine/comm/store/tcp_store_server.h"
#include "engine/comm/transport/tcp/pending_connection.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

using runtime::Clock;

// How often a rank that waits for others looks whether the job was aborted.
constexpr std::chrono::milliseconds kStoreInterval{100};
// The same while it connects: an attempt has to last as long as the first packet may be on its way.
constexpr std::chrono::milliseconds kConnectInterval{1000};

class Mesh {
 public:
  Mesh(const TcpTransportOptions& options, const std::vector<int>& peers, Store& store)
      : options_(options),
        peers_(peers),
        store_(store),
        deadline_(runtime::deadline_after(options.timeout_seconds)),
        listener_(listen_on(options.address, 0)),
        connections_(static_cast<std::size_t>(options.world_size)) {}

  std::vector<Socket> connect() {
    publish();
    // All addresses before the first connection: whoever accepts one gives it kHandshakeTime,
    // and some rank may come much later.
    std::vector<std::pair<int, RankAddress>> lower;
    for (const int peer : peers_) {
      if (peer < options_.rank) lower.emplace_back(peer, address_of(peer));
    }
    for (const auto& [peer, address] : lower) {
      pending_.emplace_back(identity(), peer, address);
      begin_to_connect(pending_.back());
    }
    while (num_connected_ < peers_.size()) wait_for_events();
    return std::move(connections_);
  }

 private:
  std::string key_of(int rank) const {
    return fmt::format("transport/tcp/{}/{}", options_.group, rank);
  }
  Identity identity() const {
    return {options_.token, options_.group, options_.rank, options_.world_size};
  }

  void publish();
  RankAddress address_of(int peer);
  Socket reach(int peer, const RankAddress& address);
  void begin_to_connect(PendingConnection& pending);
  void throw_if_aborted() { store_.try_get(key_of(options_.rank)); }
  void wait_for_events();
  void accept_all();
  void read_from(PendingConnection& pending);
  void keep(PendingConnection& pending);
  void connect_again(const PendingConnection& pending);
  void drop_old();
  std::string missing_ranks() const;

  const TcpTransportOptions& options_;
  const std::vector<int>& peers_;
  Store& store_;
  runtime::Deadline deadline_;
  Socket listener_;
  std::vector<Socket> connections_;
  std::size_t num_connected_ = 0;
  std::list<PendingConnection> pending_;
  Clock::time_point last_look_ = Clock::now();
};

void Mesh::publish() {
  const std::string entry = entry_of({port_of(listener_), options_.world_size, options_.address});
  const std::string first = store_.set_if_absent(key_of(options_.rank), entry);
  if (first == entry) return;
  const RankAddress holder = address_in(first);
  throw duplicate_rank("connect", options_.rank,
                   fmt::format("a process at {} port {}", holder.host, holder.port));
}

RankAddress Mesh::address_of(int peer) {
  std::string entry;
  try {
    entry = store_.get(key_of(peer), deadline_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    fail(ErrorCode::Timeout, "connect", "rank {} waited {} s for the others to come, missing: {}",
         options_.rank, options_.timeout_seconds, missing_ranks());
  }
  const RankAddress address = address_in(entry);
  require(address.world_size == options_.world_size, ErrorCode::Comm, "connect",
          "rank {} was started for {} ranks, rank {} for {}; all need the same WORLD_SIZE",
          options_.rank, options_.world_size, peer, address.world_size);
  return address;
}

// It listens, or it has ended since it said where: then the job is aborted, as soon as the store
// has noticed.
Socket Mesh::reach(int peer, const RankAddress& address) {
  while (true) {
    const auto next_look = Clock::now() + kConnectInterval;
    try {
      return connect_to(address.host, address.port, runtime::earlier(deadline_, next_look));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Timeout) throw;
      throw_if_aborted();
      if (!runtime::has_passed(deadline_)) continue;
      fail(
          ErrorCode::Timeout, "connect",
          "rank {} does not reach rank {}, which came but does not answer at {} port {}: it ended, "
          "or a firewall is between their hosts",
          options_.rank, peer, address.host, address.port);
    }
  }
}

void Mesh::begin_to_connect(PendingConnection& pending) {
  pending.socket = reach(pending.expected, pending.address);
  pending.send_output();
}

// That rank is busy with strangers, or it has ended: then the job is aborted, as soon as the store
// has noticed.
void Mesh::connect_again(const PendingConnection& pending) {
  throw_if_aborted();
  std::this_thread::sleep_for(kPauseAfterReset);
  pending_.emplace_back(identity(), pending.expected, pending.address);
  begin_to_connect(pending_.back());
}

void Mesh::wait_for_events() {
  std::vector<pollfd> descriptors{{listener_.descriptor(), POLLIN, 0}};
  for (const PendingConnection& pending : pending_) {
    descriptors.push_back({pending.socket.descriptor(), POLLIN, 0});
  }
  const auto next_look = last_look_ + kStoreInterval;
  poll(descriptors.data(), descriptors.size(),
       runtime::milliseconds_until(runtime::earlier(deadline_, next_look)));
  std::size_t next = 1;
  for (PendingConnection& pending : pending_) {
    if (descriptors[next++].revents != 0) read_from(pending);
  }
  if (descriptors[0].revents != 0) accept_all();
  drop_old();
  if (Clock::now() >= next_look) {
    throw_if_aborted();
    last_look_ = Clock::now();
  }
  if (num_connected_ < peers_.size() && runtime::has_passed(deadline_)) {
    fail(ErrorCode::Timeout, "connect", "rank {} waited {} s for the others to come, missing: {}",
         options_.rank, options_.timeout_seconds, missing_ranks());
  }
}

void Mesh::accept_all() {
  constexpr int kMostAtOnce = 64;
  for (int i = 0; i < kMostAtOnce; ++i) {
    Socket connection;
    const AcceptResult result = accept_from(listener_, connection);
    require(result != AcceptResult::no_descriptors, ErrorCode::Comm, "connect",
            "rank {} may not open more files; raise the limit (ulimit -n), a rank needs one for "
            "each of the {} others",
            options_.rank, peers_.size());
    if (result == AcceptResult::none) return;
    pending_.emplace_back(identity(), std::move(connection));
    read_from(pending_.back());  // its hello has often come before its turn
  }
}

void Mesh::read_from(PendingConnection& pending) {
  pending.receive();
  if (pending.greeting.peer()) keep(pending);
}

void Mesh::keep(PendingConnection& pending) {
  const int peer = *pending.greeting.peer();
  Socket& place = connections_[static_cast<std::size_t>(peer)];
  const bool is_expected = pending.expected >= 0 ? peer == pending.expected : peer > options_.rank;
  const bool is_peer = std::ranges::find(peers_, peer) != peers_.end();
  if (!pending.is_gone && is_expected && is_peer && !place.is_open()) {
    place = std::move(pending.socket);
    ++num_connected_;
  }
  pending.is_gone = true;
}

// Strangers that say nothing, and connections to ranks that closed or cut them.
void Mesh::drop_old() {
  const auto oldest = Clock::now() - kHandshakeTime;
  const std::size_t most = kMaxStrangers + peers_.size();
  std::size_t num_strangers = 0;
  std::size_t num_waiting = 0;
  std::vector<PendingConnection*> to_connect_again;
  for (auto pending = pending_.rbegin(); pending != pending_.rend(); ++pending) {
    if (pending->expected >= 0) {
      const bool is_kept = connections_[static_cast<std::size_t>(pending->expected)].is_open();
      if (!pending->is_gone || is_kept) continue;
      if (pending->is_cut) {
        to_connect_again.push_back(&*pending);
        continue;
      }
      throw_if_aborted();  // the reason, where that rank had one
      fail(ErrorCode::Comm, "connect",
           "rank {} closed its connection to rank {} before they knew each other: it ended, or it "
           "belongs to another group",
           pending->expected, options_.rank);
    } else if (!pending->is_gone) {
      std::size_t& count = pending->greeting.has_heard_hello() ? num_waiting : num_strangers;
      if (pending->since > oldest && ++count <= most) continue;
      pending->is_gone = true;
      pending->socket.reset();
    }
  }
  for (PendingConnection* pending : to_connect_again) connect_again(*pending);
  pending_.remove_if([](const PendingConnection& pending) { return pending.is_gone; });
}

std::string Mesh::missing_ranks() const {
  std::string text;
  for (const int peer : peers_) {
    if (connections_[static_cast<std::size_t>(peer)].is_open()) continue;
    // A lower rank that came may just not have got around to answering.
    const bool has_come = store_.try_get(key_of(peer)).has_value();
    add_to_list(text,
                fmt::format("rank {}{}", peer, has_come ? " (it came, but did not connect)" : ""));
  }
  return text;
}

}  // namespace

std::vector<Socket> connect_ranks(const TcpTransportOptions& options, const std::vector<int>& peers,
                                  Store& store) {
  std::optional<Mesh> mesh;  // whose connections close after the store knows why
  try {
    return mesh.emplace(options, peers, store).connect();
  } catch (const DuplicateRank&) {
    throw;
  } catch (const Error& error) {
    try {
      store.abort(error);
    } catch (const Error&) {
      // The store is gone: there is nobody left to tell.
    }
    throw;
  }
}

}  // namespace lockstep::comm
