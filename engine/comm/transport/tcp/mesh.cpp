#include "engine/comm/transport/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <list>
#include <optional>
#include <utility>

#include "engine/comm/rank_taken.h"
#include "engine/comm/store/tcp_store_server.h"
#include "engine/comm/transport/tcp/greeting.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

using runtime::Clock;

// How often a rank that waits for others looks whether the job was aborted.
constexpr std::chrono::milliseconds kStoreInterval{100};
// The same while it connects: an attempt has to last as long as the first packet may be on its way.
constexpr std::chrono::milliseconds kConnectInterval{1000};

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

struct Address {
  std::uint16_t port = 0;
  int world_size = 0;
  std::string host;
};

// "port world_size nonce host": the nonce makes the entries of two processes differ.
std::string entry_of(const Address& address) {
  return fmt::format("{} {} {} {}", address.port, address.world_size, hex(random_nonce()),
                     address.host);
}

Address address_in(const std::string& entry) {
  Address address;
  const char* end = entry.data() + entry.size();
  const auto port = std::from_chars(entry.data(), end, address.port);
  const auto size = std::from_chars(std::min(port.ptr + 1, end), end, address.world_size);
  const std::size_t last = entry.rfind(' ');
  require(port.ec == std::errc() && size.ec == std::errc() && last != std::string::npos,
          ErrorCode::Comm, "connect", "the store holds no address of a rank but \"{}\"", entry);
  address.host = entry.substr(last + 1);
  return address;
}

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
    // All addresses before the first connection: whoever accepts one gives it kHandshakeSeconds,
    // and some rank may come much later.
    std::vector<std::pair<int, Address>> lower;
    for (const int peer : peers_) {
      if (peer < options_.rank) lower.emplace_back(peer, address_of(peer));
    }
    for (const auto& [peer, address] : lower) begin_to_connect(peer, address);
    while (num_connected_ < peers_.size()) wait_for_events();
    return std::move(connections_);
  }

 private:
  struct Pending {
    Socket socket;
    Greeting greeting;
    Clock::time_point since;
    int expected = -1;  // the rank that was connected to
    std::vector<std::byte> input;
    bool is_gone = false;
  };

  std::string key_of(int rank) const {
    return fmt::format("transport/tcp/{}/{}", options_.group, rank);
  }
  Identity identity() const {
    return {options_.token, options_.group, options_.rank, options_.world_size};
  }

  void publish();
  Address address_of(int peer);
  Socket reach(int peer, const Address& address);
  void begin_to_connect(int peer, const Address& address);
  void throw_if_aborted() { store_.try_get(key_of(options_.rank)); }
  void wait_for_events();
  void accept_all();
  void read_from(Pending& pending);
  void send_output(Pending& pending);
  void keep(Pending& pending);
  void drop_old();
  std::string missing_ranks() const;

  const TcpTransportOptions& options_;
  const std::vector<int>& peers_;
  Store& store_;
  runtime::Deadline deadline_;
  Socket listener_;
  std::vector<Socket> connections_;
  std::size_t num_connected_ = 0;
  std::list<Pending> pending_;
  Clock::time_point last_look_ = Clock::now();
};

void Mesh::publish() {
  const std::string entry = entry_of({port_of(listener_), options_.world_size, options_.address});
  const std::string first = store_.set_if_absent(key_of(options_.rank), entry);
  if (first == entry) return;
  const Address holder = address_in(first);
  throw rank_taken("connect", options_.rank,
                   fmt::format("a process at {} port {}", holder.host, holder.port));
}

Address Mesh::address_of(int peer) {
  std::string entry;
  try {
    entry = store_.get(key_of(peer), deadline_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    fail(ErrorCode::Timeout, "connect", "rank {} waited {} s for the others to come, missing: {}",
         options_.rank, options_.timeout_seconds, missing_ranks());
  }
  const Address address = address_in(entry);
  require(address.world_size == options_.world_size, ErrorCode::Comm, "connect",
          "rank {} was started for {} ranks, rank {} for {}; all need the same WORLD_SIZE",
          options_.rank, options_.world_size, peer, address.world_size);
  return address;
}

// It listens, or it has ended since it said where: then the job is aborted, as soon as the store
// has noticed.
Socket Mesh::reach(int peer, const Address& address) {
  while (true) {
    const auto next_look = Clock::now() + kConnectInterval;
    try {
      return connect_to(address.host, address.port,
                        deadline_ ? std::min(*deadline_, next_look) : next_look);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Timeout) throw;
      throw_if_aborted();
      if (!deadline_ || Clock::now() < *deadline_) continue;
      fail(
          ErrorCode::Timeout, "connect",
          "rank {} does not reach rank {}, which came but does not answer at {} port {}: it ended, "
          "or a firewall is between their hosts",
          options_.rank, peer, address.host, address.port);
    }
  }
}

void Mesh::begin_to_connect(int peer, const Address& address) {
  pending_.push_back({reach(peer, address),
                      Greeting(identity(), Greeting::Side::connects),
                      Clock::now(),
                      peer,
                      {},
                      false});
  send_output(pending_.back());
}

void Mesh::wait_for_events() {
  std::vector<pollfd> descriptors{{listener_.descriptor(), POLLIN, 0}};
  for (const Pending& pending : pending_) {
    descriptors.push_back({pending.socket.descriptor(), POLLIN, 0});
  }
  const auto next_look = last_look_ + kStoreInterval;
  poll(descriptors.data(), descriptors.size(),
       poll_milliseconds(deadline_ ? std::min(*deadline_, next_look) : next_look));
  std::size_t next = 1;
  for (Pending& pending : pending_) {
    if (descriptors[next++].revents != 0) read_from(pending);
  }
  if (descriptors[0].revents != 0) accept_all();
  drop_old();
  if (Clock::now() >= next_look) {
    throw_if_aborted();
    last_look_ = Clock::now();
  }
  if (num_connected_ < peers_.size() && deadline_ && Clock::now() >= *deadline_) {
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
    pending_.push_back({std::move(connection),
                        Greeting(identity(), Greeting::Side::accepts),
                        Clock::now(),
                        -1,
                        {},
                        false});
  }
}

void Mesh::read_from(Pending& pending) {
  while (!pending.is_gone && pending.socket.is_open()) {
    const std::size_t wanted = pending.greeting.num_bytes_wanted();
    if (wanted == 0) return;
    std::array<std::byte, 256> buffer;
    const auto received = receive_some(
        pending.socket,
        std::span(buffer).first(std::min(buffer.size(), wanted - pending.input.size())));
    if (!received) pending.is_gone = true;
    if (!received || *received == 0) return;
    pending.input.insert(pending.input.end(), buffer.begin(),
                         buffer.begin() + static_cast<std::ptrdiff_t>(*received));
    if (pending.input.size() < wanted) continue;
    pending.greeting.receive(pending.input);
    pending.input.clear();
    send_output(pending);
    if (pending.greeting.has_failed()) pending.is_gone = true;
    if (pending.greeting.peer()) keep(pending);
  }
}

// A few hundred bytes on a new connection: the kernel takes them all, or something is wrong.
void Mesh::send_output(Pending& pending) {
  const std::vector<std::byte> output = pending.greeting.take_output();
  if (output.empty()) return;
  const auto sent = send_some(pending.socket, output);
  if (!sent || *sent != output.size()) pending.is_gone = true;
}

void Mesh::keep(Pending& pending) {
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

// Strangers that say nothing, and connections to ranks that closed them.
void Mesh::drop_old() {
  const auto oldest = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                         std::chrono::duration<double>(kHandshakeSeconds));
  std::size_t num_strangers = 0;
  for (auto pending = pending_.rbegin(); pending != pending_.rend(); ++pending) {
    if (pending->expected >= 0) {
      const bool is_kept = connections_[static_cast<std::size_t>(pending->expected)].is_open();
      if (!pending->is_gone || is_kept) continue;
      throw_if_aborted();  // the reason, where that rank had one
      fail(ErrorCode::Comm, "connect",
           "rank {} closed its connection to rank {} before they knew each other: it ended, or it "
           "belongs to another group",
           pending->expected, options_.rank);
    } else if (pending->since <= oldest || ++num_strangers > kMaxStrangers + peers_.size()) {
      pending->is_gone = true;
    }
  }
  pending_.remove_if([](const Pending& pending) { return pending.is_gone; });
}

std::string Mesh::missing_ranks() const {
  std::string text;
  for (const int peer : peers_) {
    if (connections_[static_cast<std::size_t>(peer)].is_open()) continue;
    // A lower rank that came may just not have got around to answering.
    const bool has_come = store_.try_get(key_of(peer)).has_value();
    text += fmt::format("{}rank {}{}", text.empty() ? "" : ", ", peer,
                        has_come ? " (it came, but did not connect)" : "");
  }
  return text;
}

}  // namespace

std::vector<Socket> connect_ranks(const TcpTransportOptions& options, const std::vector<int>& peers,
                                  Store& store) {
  std::optional<Mesh> mesh;  // whose connections close after the store knows why
  try {
    return mesh.emplace(options, peers, store).connect();
  } catch (const RankTaken&) {
    throw;
  } catch (const Error& error) {
    try {
      store.abort(error.what());
    } catch (const Error&) {
      // The store is gone: there is nobody left to tell.
    }
    throw;
  }
}

}  // namespace lockstep::comm
