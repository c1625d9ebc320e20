#include "engine/comm/transport/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <thread>

#include "engine/comm/comm_errors.h"
#include "engine/comm/store/hello.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

using runtime::Clock;

// How often a rank that waits for others looks whether the job was aborted.
constexpr std::chrono::milliseconds kStoreInterval{100};
// The same while it connects: an attempt has to last as long as the first packet may be on its way.
constexpr std::chrono::milliseconds kConnectInterval{1000};
constexpr std::size_t kAnswerBytes = 8;

// A rank's entry in the store: "port world_size nonce host", under which it listens. The nonce
// makes the entries of two processes differ.
struct RankAddress {
  std::uint16_t port = 0;
  int world_size = 0;  // that the rank believes in
  std::string nonce, host;
};

RankAddress address_in(const std::string& entry) {
  RankAddress address;
  std::istringstream words(entry);
  words >> address.port >> address.world_size >> address.nonce >> address.host;
  require(!words.fail(), ErrorCode::Comm, "connect",
          "the store holds no address of a rank but \"{}\"", entry);
  return address;
}

class Mesh {
 public:
  Mesh(const TcpTransportOptions& options, const std::vector<int>& peers, Store& store)
      : options_(options),
        peers_(peers),
        store_(store),
        deadline_(runtime::deadline_after(options.timeout_seconds)),
        hello_{"tcp/" + options.group, options.token, options.rank},
        connections_(static_cast<std::size_t>(options.world_size)) {}

  // A rank accepts the higher ones when it is connected to all lower ones, which rank 0 is at once.
  std::vector<Socket> connect() {
    std::vector<Socket> listeners;
    listeners.push_back(listen_on(options_.address, 0));
    HelloListener listener(std::move(listeners), hello_, peers_.size());
    publish(listener.port());
    for (const int peer : peers_) {
      if (peer < options_.rank) place_of(peer) = connect_to_rank(peer);
    }
    accept_higher(listener);
    return std::move(connections_);
  }

 private:
  std::string key_of(int rank) const {
    return fmt::format("transport/tcp/{}/{}", options_.group, rank);
  }
  Socket& place_of(int rank) { return connections_[static_cast<std::size_t>(rank)]; }
  void throw_if_aborted() { store_.try_get(key_of(options_.rank)); }

  void publish(std::uint16_t port);
  RankAddress address_of(int peer);
  Socket connect_to_rank(int peer);
  Socket reach(int peer, const RankAddress& address);
  IoResult greet(const Socket& connection);
  void accept_higher(HelloListener& listener);
  [[noreturn]] void fail_missing();

  const TcpTransportOptions& options_;
  const std::vector<int>& peers_;
  Store& store_;
  const runtime::Deadline deadline_;
  const Hello hello_;
  std::vector<Socket> connections_;
};

void Mesh::publish(std::uint16_t port) {
  const std::string entry =
      fmt::format("{} {} {:.16} {}", port, options_.world_size, make_token(), options_.address);
  const std::string first = store_.set_if_absent(key_of(options_.rank), entry);
  if (first == entry) return;
  const RankAddress holder = address_in(first);
  throw duplicate_rank("connect", options_.rank,
                       fmt::format("a process at {} port {}", holder.host, holder.port));
}

RankAddress Mesh::address_of(int peer) {
  const auto entry = store_.find(key_of(peer), deadline_);
  if (!entry) fail_missing();
  const RankAddress address = address_in(*entry);
  require(address.world_size == options_.world_size, ErrorCode::Comm, "connect",
          "rank {} was started for {} ranks, rank {} for {}; all need the same WORLD_SIZE",
          options_.rank, options_.world_size, peer, address.world_size);
  return address;
}

Socket Mesh::connect_to_rank(int peer) {
  const RankAddress address = address_of(peer);
  for (;;) {
    Socket connection = reach(peer, address);
    const IoResult result = greet(connection);
    if (result == IoResult::done) return connection;
    throw_if_aborted();  // the reason, where that rank had one
    require(result != IoResult::closed, ErrorCode::Comm, "connect",
            "rank {} closed its connection to rank {} before they knew each other: it ended, or it "
            "belongs to another group",
            peer, options_.rank);
    if (result == IoResult::timeout || runtime::has_passed(deadline_)) fail_missing();
    std::this_thread::sleep_for(kPauseAfterReset);  // strangers keep that rank busy
  }
}

// The peer listens, or it has ended since it said where: then the job is aborted, as soon as the
// store has noticed.
Socket Mesh::reach(int peer, const RankAddress& address) {
  for (;;) {
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

// The peer answers when it is connected to all ranks below it.
IoResult Mesh::greet(const Socket& connection) {
  const IoResult said = send_message(connection, encode(hello_), deadline_);
  if (said != IoResult::done) return said;
  pollfd answer{connection.descriptor(), POLLIN, 0};
  for (;;) {
    const auto next_look = Clock::now() + kStoreInterval;
    poll(&answer, 1, runtime::milliseconds_until(runtime::earlier(deadline_, next_look)));
    if (answer.revents != 0) break;
    if (runtime::has_passed(deadline_)) return IoResult::timeout;
    throw_if_aborted();
  }
  std::string welcome;
  return receive_message(connection, kAnswerBytes, welcome, deadline_);
}

void Mesh::accept_higher(HelloListener& listener) {
  const auto is_missing = [&](int peer) { return !place_of(peer).is_open(); };
  while (std::ranges::any_of(peers_, is_missing)) {
    const auto next_look = Clock::now() + kStoreInterval;
    auto visitor = listener.accept(runtime::earlier(deadline_, next_look));
    if (visitor) {
      const int peer = visitor->hello.rank;
      const bool is_expected = peer > options_.rank && std::ranges::count(peers_, peer) > 0;
      if (!is_expected || !is_missing(peer)) continue;
      const std::string welcome = MessageWriter().number(options_.rank).bytes();
      if (send_message(visitor->socket, welcome, deadline_) != IoResult::done) continue;
      place_of(peer) = std::move(visitor->socket);
      continue;
    }
    throw_if_aborted();
    if (runtime::has_passed(deadline_)) fail_missing();
  }
}

void Mesh::fail_missing() {
  std::string missing;
  for (const int peer : peers_) {
    if (place_of(peer).is_open()) continue;
    // A lower rank that came may just not have got around to answering.
    const bool has_come = store_.try_get(key_of(peer)).has_value();
    add_to_list(missing,
                fmt::format("rank {}{}", peer, has_come ? " (it came, but did not connect)" : ""));
  }
  fail(ErrorCode::Timeout, "connect", "rank {} waited {} s for the others to come, missing: {}",
       options_.rank, options_.timeout_seconds, missing);
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
      // The store is gone: no rank is left to hear it.
    }
    throw;
  }
}

}  // namespace lockstep::comm
