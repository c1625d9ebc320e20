#include "engine/comm/transport/tcp/tcp_link.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/comm/comm_errors.h"

namespace lockstep::comm {
namespace {

// A rank with a core of its own asks this long before it sleeps; about what a sleep costs.
constexpr std::chrono::microseconds kSpinTime{50};
constexpr std::chrono::milliseconds kTick{2};
// How long a rank that leaves waits until its peers have what it sent.
constexpr double kDeliverySeconds = 5;
constexpr double kDeliverySecondsAfterFailure = 0.1;
constexpr std::uint32_t kWakeEvent = ~std::uint32_t{0};

std::vector<int> members_of(int rank, const std::vector<Socket>& connections) {
  std::vector<int> members;
  for (std::size_t r = 0; r < connections.size(); ++r) {
    if (connections[r].is_open() || static_cast<int>(r) == rank) {
      members.push_back(static_cast<int>(r));
    }
  }
  return members;
}

bool has_unsent(const Socket& socket) {
  int num_bytes = 0;
  return ioctl(socket.descriptor(), SIOCOUTQ, &num_bytes) == 0 && num_bytes > 0;
}

}  // namespace

TcpLink::TcpLink(int rank, std::vector<Socket> connections, bool is_crowded)
    : group_(static_cast<int>(connections.size()), members_of(rank, connections)),
      by_rank_(connections.size()),
      watched_(connections.size()),
      spin_time_(is_crowded ? std::chrono::microseconds(0) : kSpinTime),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = kWakeEvent;
  const bool is_watched =
      epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, wake_.descriptor(), &event) == 0;
  require(is_watched, ErrorCode::Comm, "connect",
          "rank {} may not open more files; raise the limit (ulimit -n)", rank);
  for (std::size_t r = 0; r < connections.size(); ++r) {
    if (!connections[r].is_open()) continue;
    peers_.push_back(
        std::make_unique<Peer>(static_cast<int>(r), std::move(connections[r]), group_));
    by_rank_[r] = peers_.back().get();
    watch(*peers_.back());
  }
  if (!peers_.empty()) thread_ = std::thread([this] { look_after(); });
}

TcpLink::~TcpLink() {
  {
    const std::lock_guard lock(thread_mutex_);
    is_stopping_ = true;
  }
  thread_wakes_.notify_all();
  wake();
  if (thread_.joinable()) thread_.join();
  // A failure that nobody has waited for since is told before the goodbye.
  if (group_.failure().is_set()) spread_failure();
  FrameHeader goodbye;
  goodbye.kind = FrameKind::goodbye;
  for (const auto& peer : peers_) peer->outbox().own(goodbye, {});
  deliver_rest();
}

Peer& TcpLink::peer(int rank) {
  Peer* peer = by_rank_[static_cast<std::size_t>(rank)];
  require(peer != nullptr, ErrorCode::State, "tcp", "rank {} is no peer of this transport", rank);
  return *peer;
}

void TcpLink::fail_and_throw(const Error& error) {
  group_.failure().set(error);
  spread_failure();
  throw group_.failure().error();
}

void TcpLink::spread_failure() {
  if (std::exchange(has_spread_failure_, true)) return;
  const std::string error = encode(group_.failure().error(), kMaxFailureBytes);
  const auto payload = std::as_bytes(std::span(error));
  FrameHeader header;
  header.kind = FrameKind::failure;
  header.num_bytes = payload.size();
  for (const auto& peer : peers_) {
    peer->outbox().forget_borrowed();
    peer->outbox().own(header, {payload.begin(), payload.end()});
    peer->send();
  }
  leave_rest_to_thread();
}

void TcpLink::leave_rest_to_thread() {
  for (const auto& peer : peers_) watch(*peer);
}

void TcpLink::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof one);
}

bool TcpLink::move_some(Peer& awaited) {
  for (const auto& peer : peers_) {
    if (!peer->outbox().is_empty()) peer->send();
  }
  return awaited.receive();
}

bool TcpLink::sleep_and_move(runtime::Deadline deadline) {
  leave_rest_to_thread();
  return handle_events(runtime::milliseconds_until(deadline));
}

// Has epoll report what there is to do for a peer.
void TcpLink::watch(Peer& peer) {
  std::uint32_t wanted = 0;
  if (!peer.has_ended()) wanted |= EPOLLIN;
  if (!peer.outbox().is_empty()) wanted |= EPOLLOUT;
  std::uint32_t& watched = watched_[static_cast<std::size_t>(peer.rank())];
  if (wanted == watched) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u32 = static_cast<std::uint32_t>(peer.rank());
  // One that has ended would be reported for ever.
  const int change = watched == 0 ? EPOLL_CTL_ADD : wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_ctl(epoll_.descriptor(), change, peer.socket().descriptor(), &event);
  watched = wanted;
}

bool TcpLink::handle_events(int timeout_milliseconds) {
  constexpr int kMaxEvents = 64;
  constexpr int kMaxReads = 16;  // then the next one has its turn
  std::array<epoll_event, kMaxEvents> events;
  const int count =
      epoll_wait(epoll_.descriptor(), events.data(), kMaxEvents, timeout_milliseconds);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u32 == kWakeEvent) {
      std::uint64_t value = 0;
      [[maybe_unused]] const ssize_t size = read(wake_.descriptor(), &value, sizeof value);
      continue;
    }
    Peer& peer = *by_rank_[event.data.u32];
    if ((event.events & EPOLLOUT) != 0) peer.send();
    for (int reads = 0; reads < kMaxReads && peer.receive(); ++reads) {
    }
    if (peer.has_ended()) peer.outbox().close();
    watch(peer);
  }
  return count > 0;
}

void TcpLink::look_after() {
  std::uint64_t num_waits = 0;
  while (!is_stopping_) {
    epoll_event news;
    epoll_wait(epoll_.descriptor(), &news, 1, -1);
    if (is_stopping_) return;
    const bool is_looked_after = num_waits != num_waits_.load(std::memory_order_relaxed);
    num_waits = num_waits_.load(std::memory_order_relaxed);
    std::unique_lock lock(mutex_, std::defer_lock);
    if (is_looked_after || !lock.try_lock()) {
      pause_for_tick();
      continue;
    }
    handle_events(0);
    if (group_.failure().is_set()) spread_failure();
  }
}

void TcpLink::pause_for_tick() {
  std::unique_lock lock(thread_mutex_);
  thread_wakes_.wait_for(lock, kTick, [&] { return is_stopping_.load(); });
}

void TcpLink::deliver_rest() {
  constexpr std::chrono::microseconds kPause{100};
  const runtime::Deadline deadline = runtime::deadline_after(
      group_.failure().is_set() ? kDeliverySecondsAfterFailure : kDeliverySeconds);
  const auto is_under_way = [](const std::unique_ptr<Peer>& peer) {
    peer->send();
    while (peer->receive()) {
    }
    return !peer->has_ended() && (!peer->outbox().is_empty() || has_unsent(peer->socket()));
  };
  for (const auto& peer : peers_) {
    while (is_under_way(peer) && !runtime::has_passed(deadline)) {
      std::this_thread::sleep_for(kPause);
    }
    shutdown(peer->socket().descriptor(), SHUT_WR);
  }
}

}  // namespace lockstep::comm
