#include "engine/comm/transport/tcp/tcp_transport.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "engine/runtime/logical_device.h"

namespace lockstep::comm {
namespace {

// A rank with a core of its own asks this long before it sleeps; about what a sleep costs.
constexpr std::chrono::microseconds kSpinTime{50};
constexpr std::chrono::milliseconds kTick{2};
// How long a rank that leaves waits until its peers have what it sent.
constexpr double kDeliverySeconds = 5;
constexpr double kDeliverySecondsAfterFailure = 0.1;

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

FrameHeader header_of(FrameKind kind, const CallHeader& call = {}) {
  FrameHeader header;
  header.kind = kind;
  header.call = pack(call);
  return header;
}

bool is_under_way(const Socket& socket) {
  int num_bytes = 0;
  return ioctl(socket.descriptor(), SIOCOUTQ, &num_bytes) == 0 && num_bytes > 0;
}

}  // namespace

TcpTransport::TcpTransport(const TcpTransportOptions& options, Store& store)
    : Transport({.rank = options.rank,
                 .world_size = options.world_size,
                 .name = "tcp",
                 .max_message_bytes = kMaxMessageBytes,
                 .hosts = {}}),
      by_rank_(static_cast<std::size_t>(options.world_size)),
      announced_(by_rank_.size()),
      spin_time_(is_crowded(options) ? std::chrono::microseconds(0) : kSpinTime),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  require(wake_.is_open(), ErrorCode::Comm, "connect",
          "rank {} may not open more files; raise the limit (ulimit -n)", rank());
  const std::vector<int> peers = peers_of(options);
  if (peers.empty()) return;
  std::vector<Socket> connections = connect_ranks(options, peers, store);
  for (const int r : peers) {
    const auto index = static_cast<std::size_t>(r);
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->rank = r;
    peers_.back()->socket = std::move(connections[index]);
    by_rank_[index] = peers_.back().get();
  }
  thread_ = std::thread([this] { look_after(); });
}

TcpTransport::~TcpTransport() {
  is_stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  // The thread may not have come to tell of a failure.
  if (failure_.is_set()) spread_failure();
  for (const auto& peer : peers_) peer->writer.add(header_of(FrameKind::goodbye), {});
  deliver_rest();
}

TcpTransport::Peer& TcpTransport::peer(int rank) {
  Peer* peer = by_rank_[static_cast<std::size_t>(rank)];
  require(peer != nullptr, ErrorCode::State, "tcp", "rank {} is no peer of this transport", rank);
  return *peer;
}

// --- moving bytes ---

template <typename Done>
void TcpTransport::wait_for(Peer& peer, const Done& done) {
  if (done()) return;
  num_waits_.fetch_add(1, std::memory_order_relaxed);
  const auto start = runtime::Clock::now();
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds_);
  bool spins = spin_time_.count() > 0 && runtime::may_spin();
  bool has_moved = false;
  for (;;) {
    spins = spins && (has_moved || runtime::Clock::now() - start < spin_time_);
    // Read before the sockets are: what came in time counts, however late this thread runs.
    const bool is_late = !spins && runtime::has_passed(deadline);
    if (spins) {
      peer.writer.flush(peer.socket);
      has_moved = receive(peer);
    } else {
      move(deadline);
    }
    if (failure_.is_set()) {
      spread_failure();
      failure_.throw_if_set();
    }
    if (done()) break;
    if (peer.has_left) fail_here(wait_of(peer).left());
    if (is_late) fail_here(wait_of(peer).late(describe_missing(call_.sequence)));
  }
  leave_unsent_to_thread();
}

// Takes what the socket has now, once. Says whether there was something, the end included.
bool TcpTransport::receive(Peer& peer) {
  if (peer.has_ended) return false;
  std::size_t count = 0;
  const IoResult result = receive_some(peer.socket, peer.reader.space(), count);
  if (result != IoResult::done) {
    peer.has_ended = true;
    if (!peer.has_left) failure_.set(lost_rank(peer.rank));
    return true;
  }
  if (count == 0) return false;
  if (!peer.reader.received(count, [&](Frame frame) { handle(peer, std::move(frame)); })) {
    peer.has_ended = true;
    failure_.set(garbled_rank(peer.rank));
  }
  return true;
}

void TcpTransport::handle(Peer& peer, Frame frame) {
  switch (frame.header.kind) {
    case FrameKind::announce:
      announced_[static_cast<std::size_t>(peer.rank)].publish(unpack(frame.header.call));
      return;
    case FrameKind::data:
      peer.data.push_back(std::move(frame));
      return;
    case FrameKind::message:
      peer.messages.push_back(std::move(frame));
      return;
    case FrameKind::failure: {
      const auto bytes = frame.payload();
      failure_.set(decode_error({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
      return;
    }
    case FrameKind::goodbye:
      peer.has_left = true;
      return;
  }
}

std::vector<pollfd> TcpTransport::events_to_await() const {
  std::vector<pollfd> events{{wake_.descriptor(), POLLIN, 0}};
  for (const auto& peer : peers_) {
    short wanted = 0;
    if (!peer->has_ended) wanted |= POLLIN;
    if (peer->writer.has_unsent()) wanted |= POLLOUT;
    // One that has ended would be reported for ever: poll() passes over -1.
    events.push_back({wanted == 0 ? -1 : peer->socket.descriptor(), wanted, 0});
  }
  return events;
}

void TcpTransport::move(runtime::Deadline deadline) {
  constexpr int kMaxReads = 16;  // then the next peer has its turn
  std::vector<pollfd> events = events_to_await();
  if (poll(events.data(), events.size(), runtime::milliseconds_until(deadline)) <= 0) return;
  if (events[0].revents != 0) {
    std::uint64_t value = 0;
    [[maybe_unused]] const ssize_t size = read(wake_.descriptor(), &value, sizeof value);
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (events[i + 1].revents == 0) continue;
    Peer& peer = *peers_[i];
    peer.writer.flush(peer.socket);
    for (int reads = 0; reads < kMaxReads && receive(peer); ++reads) {
    }
  }
}

void TcpTransport::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof one);
}

void TcpTransport::leave_unsent_to_thread() {
  for (const auto& peer : peers_) {
    if (peer->writer.has_unsent()) return wake();
  }
}

void TcpTransport::look_after() {
  std::uint64_t num_waits = 0;
  while (!is_stopping_) {
    // A caller that waits does all that there is to do.
    const bool has_waited = num_waits != num_waits_.load(std::memory_order_relaxed);
    num_waits = num_waits_.load(std::memory_order_relaxed);
    std::vector<pollfd> events;
    if (std::unique_lock lock(mutex_, std::defer_lock); !has_waited && lock.try_lock()) {
      move(runtime::Clock::now());
      if (failure_.is_set()) spread_failure();
      events = events_to_await();
    }
    if (is_stopping_) break;  // which a wake() that move() has read may have been for
    if (!events.empty()) {
      poll(events.data(), events.size(), -1);
      continue;
    }
    std::this_thread::sleep_for(kTick);
  }
}

void TcpTransport::deliver_rest() {
  constexpr std::chrono::microseconds kPause{100};
  const runtime::Deadline deadline =
      runtime::deadline_after(failure_.is_set() ? kDeliverySecondsAfterFailure : kDeliverySeconds);
  const auto has_to_wait = [&](Peer& peer) {
    peer.writer.flush(peer.socket);
    while (receive(peer)) {
    }
    return !peer.has_ended && (peer.writer.has_unsent() || is_under_way(peer.socket));
  };
  for (const auto& peer : peers_) {
    while (has_to_wait(*peer) && !runtime::has_passed(deadline)) {
      std::this_thread::sleep_for(kPause);
    }
    shutdown(peer->socket.descriptor(), SHUT_WR);
  }
}

// --- the calls ---

void TcpTransport::announce(const CallHeader& call, double timeout_seconds) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  announced_[static_cast<std::size_t>(rank())].publish(call);
  for (const auto& peer : peers_) {
    peer->writer.add(header_of(FrameKind::announce, call), {});
    peer->writer.flush(peer->socket);
  }
  leave_unsent_to_thread();
}

CallHeader TcpTransport::announced_by(int peer) {
  const std::lock_guard lock(mutex_);
  const Announcements& theirs = announced_[static_cast<std::size_t>(peer)];
  wait_for(this->peer(peer), [&] { return theirs.has_reached(call_.sequence); });
  return theirs.call(call_.sequence);
}

void TcpTransport::post(int to, Bytes data) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  Peer& peer = this->peer(to);
  const std::uint64_t number = peer.writer.add(header_of(FrameKind::data, call_), data);
  peer.writer.flush(peer.socket);
  wait_for(peer, [&] { return peer.writer.num_sent() >= number; });
}

const std::byte* TcpTransport::take(int from, std::size_t num_bytes) {
  const std::lock_guard lock(mutex_);
  Peer& peer = this->peer(from);
  wait_for(peer, [&] { return !peer.data.empty(); });
  const auto payload = peer.data.front().payload();
  if (payload.size() != num_bytes) {
    fail_here(wait_of(peer).found_bytes(num_bytes, payload.size()));
  }
  return payload.data();
}

void TcpTransport::release(int from) {
  const std::lock_guard lock(mutex_);
  Peer& peer = this->peer(from);
  peer.reader.recycle(std::move(peer.data.front()));
  peer.data.pop_front();
}

void TcpTransport::send_message(int to, const CallHeader& call, Bytes data) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  Peer& peer = this->peer(to);
  peer.writer.add(header_of(FrameKind::message, call), data);
  peer.writer.flush(peer.socket);
  peer.writer.keep_unsent();
  leave_unsent_to_thread();
}

void TcpTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                   double timeout_seconds) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  Peer& peer = this->peer(from);
  wait_for(peer, [&] { return !peer.messages.empty(); });
  const Frame message = std::move(peer.messages.front());
  peer.messages.pop_front();
  const CallHeader theirs = unpack(message.header.call);
  if (theirs.dtype != call.dtype || message.payload().size() != data.size()) {
    fail_here(Error(ErrorCode::Comm, name_of(call.operation),
                    describe_difference(rank(), call, from, theirs)));
  }
  if (!data.empty()) std::memcpy(data.data(), message.payload().data(), data.size());
}

// --- failing ---

void TcpTransport::fail(const Error& error) noexcept {
  failure_.set(error);
  // A caller that waits has the mutex; it, or the thread, tells the peers.
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) spread_failure();
  wake();
}

void TcpTransport::fail_here(const Error& error) {
  failure_.set(error);
  spread_failure();
  throw failure_.error();
}

void TcpTransport::spread_failure() {
  if (std::exchange(has_spread_failure_, true)) return;
  const std::string error = encode(failure_.error(), kMaxFailureBytes);
  for (const auto& peer : peers_) {
    peer->writer.add(header_of(FrameKind::failure), std::as_bytes(std::span(error)));
    peer->writer.flush(peer->socket);
    peer->writer.keep_unsent();  // also what a caller has posted, which is its own again
  }
  leave_unsent_to_thread();
}

std::string TcpTransport::describe_missing(std::uint64_t sequence) const {
  std::string text;
  for (std::size_t r = 0; r < announced_.size(); ++r) {
    const bool is_member = by_rank_[r] != nullptr || static_cast<int>(r) == rank();
    if (!is_member || announced_[r].has_reached(sequence)) continue;
    add_to_list(text, missing_rank(static_cast<int>(r), announced_[r].last()));
  }
  return text;
}

}  // namespace lockstep::comm
