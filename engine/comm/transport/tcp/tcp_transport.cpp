#include "engine/comm/transport/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/comm/transport/tcp/mesh.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::comm {
namespace {

std::vector<int> peers_of(const TcpTransportOptions& options) {
  require(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
          ErrorCode::Usage, "tcp", "rank {} of {} does not exist", options.rank,
          options.world_size);
  if (!options.peers.empty()) return options.peers;
  std::vector<int> peers;
  for (int r = 0; r < options.world_size; ++r) {
    if (r != options.rank) peers.push_back(r);
  }
  return peers;
}

bool is_crowded(const TcpTransportOptions& options) {
  const int num_ranks = options.num_local_ranks > 0 ? options.num_local_ranks : options.world_size;
  return static_cast<std::size_t>(num_ranks) > runtime::num_cores();
}

std::vector<Socket> connections_of(const TcpTransportOptions& options, Store& store) {
  const std::vector<int> peers = peers_of(options);
  if (peers.empty()) return std::vector<Socket>(static_cast<std::size_t>(options.world_size));
  return connect_ranks(options, peers, store);
}

}  // namespace

TcpTransport::TcpTransport(const TcpTransportOptions& options, Store& store)
    : Transport({options.rank, options.world_size, "tcp", kMaxMessageBytes,
                 std::numeric_limits<std::size_t>::max(), {}}),
      link_(options.rank, connections_of(options, store), is_crowded(options)) {}

template <typename Done>
void TcpTransport::wait_for(int peer, const Done& done) {
  link_.wait_for(
      peer, timeout_seconds_, done, [&] { return wait_of(peer).left(); },
      [&] { return wait_of(peer).late(link_.group().describe_missing(call_.sequence)); });
}

// The next message of a plan is the one that this rank expects.
void TcpTransport::require_expected(int from, const FrameHeader& header, std::size_t num_bytes) {
  const CallHeader& theirs = header.call;
  if (header.num_bytes == num_bytes && theirs.sequence == call_.sequence &&
      theirs.operation == call_.operation && theirs.dtype == call_.dtype && theirs.op == call_.op) {
    return;
  }
  link_.fail_and_throw(Error(
      ErrorCode::Comm, name_of(call_.operation),
      fmt::format("rank {} expected {} bytes from rank {} for {}, found {} bytes for {}", rank(),
                  num_bytes, from, to_string(call_), header.num_bytes, to_string(theirs))));
}

void TcpTransport::announce(const CallHeader& call, double timeout_seconds) {
  const std::lock_guard lock(link_.mutex());
  throw_if_failed();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  link_.group().announced(rank()).publish(call);
  for (const auto& peer : link_.peers()) {
    peer->outbox().own({FrameKind::announce, call, 0}, {});
    peer->send();
  }
}

CallHeader TcpTransport::announced_by(int peer) {
  const std::lock_guard lock(link_.mutex());
  const Announcements& theirs = link_.group().announced(peer);
  const std::uint64_t sequence = call_.sequence;
  wait_for(peer, [&] { return theirs.has_reached(sequence); });
  return theirs.call(sequence);
}

void TcpTransport::post(int to, Bytes data) {
  const std::lock_guard lock(link_.mutex());
  throw_if_failed();
  Peer& peer = link_.peer(to);
  peer.outbox().borrow({FrameKind::data, call_, data.size()}, data);
  peer.send();
  peer.outbox().keep_last();
  link_.leave_rest_to_thread();
}

const std::byte* TcpTransport::take(int from, std::size_t num_bytes) {
  const std::lock_guard lock(link_.mutex());
  Inbox& inbox = link_.peer(from).inbox();
  wait_for(from, [&] { return inbox.is_complete(); });
  require_expected(from, *inbox.message(), num_bytes);
  return inbox.hold();
}

void TcpTransport::release(int from) {
  const std::lock_guard lock(link_.mutex());
  link_.peer(from).inbox().release();
}

void TcpTransport::send_message(int to, const CallHeader& call, Bytes data) {
  const std::lock_guard lock(link_.mutex());
  throw_if_failed();
  Peer& peer = link_.peer(to);
  peer.outbox().borrow({FrameKind::letter, call, data.size()}, data);
  peer.send();
  peer.outbox().keep_last();
  link_.leave_rest_to_thread();
}

void TcpTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                   double timeout_seconds) {
  const std::lock_guard lock(link_.mutex());
  throw_if_failed();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  auto& letters = link_.peer(from).letters();
  wait_for(from, [&] { return !letters.empty(); });
  const Peer::Letter letter = std::move(letters.front());
  letters.pop_front();
  if (letter.call.dtype != call.dtype || letter.data.size() != data.size()) {
    link_.fail_and_throw(Error(ErrorCode::Comm, name_of(call.operation),
                               describe_difference(rank(), call, from, letter.call)));
  }
  if (!data.empty()) std::memcpy(data.data(), letter.data.data(), data.size());
}

void TcpTransport::fail(const Error& error) noexcept {
  if (link_.group().failure().set(error)) link_.wake();
}

void TcpTransport::throw_if_failed() const {
  link_.group().failure().throw_if_set();
}

std::string TcpTransport::describe_missing(std::uint64_t sequence) const {
  return link_.group().describe_missing(sequence);
}

}  // namespace lockstep::comm
