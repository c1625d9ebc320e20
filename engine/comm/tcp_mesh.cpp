// How the ranks of a group get connected over TCP (transport.h).
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "engine/comm/comm_errors.h"
#include "engine/comm/process_transports.h"
#include "engine/comm/store/hello.h"
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
  Mesh(const ProcessGroupOptions& options, const std::vector<int>& peers)
      : options_(options),
        peers_(peers),
        store_(*options.store),
        deadline_(runtime::deadline_after(options.timeout_seconds)),
        hello_{"tcp/" + options.group, options.token, options.rank},
        connections_(static_cast<std::size_t>(options.world_size)) {}

  std::vector<Socket> connect() {
    require_token(options_.token);
    const Socket listener = listen_on(options_.address, 0);
    // "port host"
    store_.set(key_of(options_.rank), fmt::format("{} {}", port_of(listener), options_.address));
    for (const int peer : peers_) {
      if (peer < options_.rank) connect_to_rank(peer);
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

  // The peer listens, or it has ended since it said where: then the job is aborted, as soon as the
  // store has noticed.
  void connect_to_rank(int peer) {
    const auto entry = store_.find(key_of(peer), deadline_);
    if (!entry) fail_missing();
    const auto port = static_cast<std::uint16_t>(std::stoi(*entry));
    const std::string host = entry->substr(entry->find(' ') + 1);
    Socket& connection = place_of(peer);
    while (!connection.is_open()) {
      try {
        const runtime::Deadline next_look = Clock::now() + kConnectInterval;
        connection = connect_to(host, port, runtime::earlier(deadline_, next_look));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::Timeout) throw;
        throw_if_aborted();
        require(!runtime::has_passed(deadline_), ErrorCode::Timeout, "connect",
                "rank {} cannot reach rank {}, which came but does not answer at {} port {}: it "
                "ended, or a firewall is between their hosts",
                options_.rank, peer, host, port);
      }
    }
    // When the peer is lost already, the first use of the connection says so.
    send_message(connection, to_message(hello_), deadline_);
  }

  void accept_higher(const Socket& listener) {
    const auto is_missing = [&](int peer) { return !place_of(peer).is_open(); };
    while (std::ranges::any_of(peers_, is_missing)) {
      throw_if_aborted();
      if (runtime::has_passed(deadline_)) fail_missing();
      const runtime::Deadline next_look = Clock::now() + kStoreInterval;
      if (!wait_for_event(listener, POLLIN, runtime::earlier(deadline_, next_look))) continue;
      Socket visitor = accept_from(listener);
      require(visitor.is_open() || errno == EAGAIN, ErrorCode::Comm, "connect",
              "rank {} may not open more files; raise the limit (ulimit -n)", options_.rank);
      const auto hello = receive_hello(visitor, hello_, deadline_);
      if (!hello || hello->rank <= options_.rank || std::ranges::count(peers_, hello->rank) == 0) {
        continue;
      }
      if (is_missing(hello->rank)) place_of(hello->rank) = std::move(visitor);
    }
  }

  [[noreturn]] void fail_missing() {
    std::string missing;
    for (const int peer : peers_) {
      if (place_of(peer).is_open()) continue;
      // A lower rank that came may just not have got around to answering.
      const bool has_come = store_.try_get(key_of(peer)).has_value();
      add_to_list(missing, fmt::format("rank {}{}", peer,
                                       has_come ? " (it came, but did not connect)" : ""));
    }
    fail(ErrorCode::Timeout, "connect", "rank {} waited {} s for the others to come, missing: {}",
         options_.rank, options_.timeout_seconds, missing);
  }

  const ProcessGroupOptions& options_;
  const std::vector<int>& peers_;
  Store& store_;
  const runtime::Deadline deadline_;
  const Hello hello_;
  std::vector<Socket> connections_;
};

}  // namespace

std::vector<Socket> connect_ranks(const ProcessGroupOptions& options,
                                  const std::vector<int>& peers) {
  return Mesh(options, peers).connect();
}

}  // namespace lockstep::comm
