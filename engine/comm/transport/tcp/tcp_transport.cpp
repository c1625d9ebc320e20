#include "engine/comm/transport/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/comm/absent_rank.h"
#include "engine/comm/transport/tcp/mesh.h"
#include "engine/comm/transport/tcp/tcp_link.h"
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

class TcpTransport::Impl {
 public:
  Impl(const TcpTransportOptions& options, Store& store)
      : rank(options.rank),
        world_size(options.world_size),
        link(options.rank, connections_of(options, store), is_crowded(options)) {}

  struct Staging {
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<Line> memory;
    std::vector<std::pair<int, Ticket>> posted;
  };

  template <typename Done>
  void wait_for(int peer, const Done& done) {
    link.wait_for(
        peer, timeout_seconds, done, [&] { return wait_of(peer).left(); },
        [&] { return wait_of(peer).late(link.group().describe_missing(call.sequence)); });
  }

  void wait_sent(int to, Ticket ticket) {
    const Outbox& outbox = link.peer(to).outbox();
    wait_for(to, [&] { return outbox.num_sent() >= ticket; });
  }

  FrameHeader header_of(FrameKind kind, const CallHeader& of_call, std::size_t num_bytes) const {
    return {kind, of_call, num_bytes};
  }

  RankWait wait_of(int peer) const { return {rank, peer, call, timeout_seconds}; }

  // The next message of a plan is the one that this rank expects.
  void require_expected(int from, const FrameHeader& header, std::size_t num_bytes) {
    const CallHeader& theirs = header.call;
    if (header.num_bytes == num_bytes && theirs.sequence == call.sequence &&
        theirs.operation == call.operation && theirs.dtype == call.dtype && theirs.op == call.op) {
      return;
    }
    link.fail_and_throw(Error(
        ErrorCode::Comm, name_of(call.operation),
        fmt::format("rank {} expected {} bytes from rank {} for {}, found {} bytes for {}", rank,
                    num_bytes, from, to_string(call), header.num_bytes, to_string(theirs))));
  }

  int rank;
  int world_size;
  TcpLink link;
  CallHeader call;  // the current one
  double timeout_seconds = 0;
  std::array<Staging, 2> staging;  // used in turn
  std::size_t staging_turn = 0;
};

TcpTransport::TcpTransport(const TcpTransportOptions& options, Store& store)
    : impl_(std::make_unique<Impl>(options, store)) {}

TcpTransport::~TcpTransport() = default;

int TcpTransport::rank() const {
  return impl_->rank;
}
int TcpTransport::world_size() const {
  return impl_->world_size;
}

void TcpTransport::announce(const CallHeader& call, double timeout_seconds) {
  const std::lock_guard lock(impl_->link.mutex());
  throw_if_failed();
  impl_->call = call;
  impl_->timeout_seconds = timeout_seconds;
  impl_->link.group().announced(impl_->rank).publish(call);
  for (const auto& peer : impl_->link.peers()) {
    peer->outbox().own(impl_->header_of(FrameKind::announce, call, 0), {});
    peer->send();
  }
}

CallHeader TcpTransport::announced_by(int peer) {
  const std::lock_guard lock(impl_->link.mutex());
  const Announcements& theirs = impl_->link.group().announced(peer);
  const std::uint64_t sequence = impl_->call.sequence;
  impl_->wait_for(peer, [&] { return theirs.has_reached(sequence); });
  return theirs.call(sequence);
}

std::size_t TcpTransport::max_message_bytes() const {
  return kMaxMessageBytes;
}

void TcpTransport::begin_data() {
  throw_if_failed();
}

void TcpTransport::end_data() noexcept {
  const std::lock_guard lock(impl_->link.mutex());
  impl_->link.leave_rest_to_thread();
}

// Peers never touch this rank's memory; the kernel may still have to read what was posted.
void TcpTransport::abandon(const Error& error) noexcept {
  impl_->link.group().failure().set(error);
  impl_->link.wake();
  const std::lock_guard lock(impl_->link.mutex());
  impl_->link.spread_failure();
}

Ticket TcpTransport::post(int to, Bytes data) {
  const std::lock_guard lock(impl_->link.mutex());
  throw_if_failed();  // from here on nobody would let go of the data
  Peer& peer = impl_->link.peer(to);
  peer.outbox().borrow(impl_->header_of(FrameKind::data, impl_->call, data.size()), data);
  peer.send();
  return peer.outbox().num_borrowed();
}

void TcpTransport::wait_sent(int to, Ticket ticket) {
  const std::lock_guard lock(impl_->link.mutex());
  impl_->wait_sent(to, ticket);
}

const std::byte* TcpTransport::take(int from, std::size_t num_bytes) {
  const std::lock_guard lock(impl_->link.mutex());
  Inbox& inbox = impl_->link.peer(from).inbox();
  impl_->wait_for(from, [&] { return inbox.is_complete(); });
  impl_->require_expected(from, *inbox.message(), num_bytes);
  return inbox.hold();
}

void TcpTransport::release(int from) {
  const std::lock_guard lock(impl_->link.mutex());
  impl_->link.peer(from).inbox().release();
}

std::byte* TcpTransport::staging(std::size_t num_bytes) {
  const std::lock_guard lock(impl_->link.mutex());
  impl_->staging_turn = 1 - impl_->staging_turn;
  Impl::Staging& staging = impl_->staging[impl_->staging_turn];
  for (const auto& [to, ticket] : staging.posted) impl_->wait_sent(to, ticket);
  staging.posted.clear();
  const std::size_t num_lines = (num_bytes + sizeof(Impl::Staging::Line) - 1) / 64;
  if (staging.memory.size() < num_lines) staging.memory.resize(num_lines);
  return staging.memory.data()->bytes;
}

void TcpTransport::posted_from_staging(int to, Ticket ticket) {
  impl_->staging[impl_->staging_turn].posted.emplace_back(to, ticket);
}

void TcpTransport::send_message(int to, const CallHeader& call, Bytes data) {
  const std::lock_guard lock(impl_->link.mutex());
  throw_if_failed();
  Peer& peer = impl_->link.peer(to);
  peer.outbox().borrow(impl_->header_of(FrameKind::letter, call, data.size()), data);
  peer.send();
  peer.outbox().keep_last();
  impl_->link.leave_rest_to_thread();
}

void TcpTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                   double timeout_seconds) {
  const std::lock_guard lock(impl_->link.mutex());
  throw_if_failed();
  impl_->call = call;
  impl_->timeout_seconds = timeout_seconds;
  auto& letters = impl_->link.peer(from).letters();
  impl_->wait_for(from, [&] { return !letters.empty(); });
  const Peer::Letter letter = std::move(letters.front());
  letters.pop_front();
  if (letter.call.dtype != call.dtype || letter.data.size() != data.size()) {
    impl_->link.fail_and_throw(Error(ErrorCode::Comm, name_of(call.operation),
                                     describe_difference(impl_->rank, call, from, letter.call)));
  }
  if (!data.empty()) std::memcpy(data.data(), letter.data.data(), data.size());
}

void TcpTransport::fail(const Error& error) {
  if (impl_->link.group().failure().set(error)) impl_->link.wake();
}

void TcpTransport::throw_if_failed() const {
  impl_->link.group().failure().throw_if_set();
}

std::string TcpTransport::describe_missing(std::uint64_t sequence) const {
  return impl_->link.group().describe_missing(sequence);
}

}  // namespace lockstep::comm
