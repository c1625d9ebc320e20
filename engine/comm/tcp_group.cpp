// The transport between processes over TCP sockets: on one host, or on several.
//
// Every pair of ranks shares one connection, made when the transport is constructed: every rank
// listens on a free port and publishes it in the store; of two ranks the higher one connects and
// says hello (tcp_mesh.cpp).
//
// A thread that waits for a peer, to hear from it or because its socket is full, receives from this
// peer itself: first it asks again and again for a moment, then it sleeps in poll(). From all other
// peers a thread of their own receives, so that ranks that send to each other never block each
// other by full sockets, and a peer that fails is noticed. A frame on a connection is a
// FrameHeader, and a payload:
//
//   kind      payload                     means
//   announce  none                        the rank called this collective
//   data      elements                    the next message of the collective's plan
//   message   elements                    a message of send(); receivers compare size and dtype
//   failure   error (comm_errors.h)       the group failed, with this error
//   goodbye   none                        the rank leaves properly; nothing follows
//
// Failing: a connection that ends without a goodbye fails the group with Error{Comm} that names the
// rank; a rank that finds a failure sends it to all others, so that all ranks report the same.
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/comm/comm_errors.h"
#include "engine/comm/process_transports.h"
#include "engine/comm/queue.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {
namespace {

// The largest message of a plan. Large chunks travel in pieces, so that one piece is summed in the
// cache while the next is under way; pieces are large enough that their system calls do not matter.
constexpr std::size_t kMaxMessageBytes = 512 * 1024;
constexpr std::size_t kMaxFailureBytes = 64 * 1024;

// A rank that leaves, or fails, waits so long for its peers to receive what it sent.
constexpr double kDeliverySeconds = 5;
constexpr double kDeliverySecondsAfterFailure = 0.1;
// How often a rank that waits for one peer checks if another one has failed.
constexpr std::chrono::milliseconds kLook{20};

// A rank with a core of its own polls the awaited socket for so long before it sleeps: about the
// cost of a sleep.
std::chrono::microseconds spin_time_for(const ProcessGroupOptions& options,
                                        std::size_t num_local_ranks) {
  const bool has_core = num_sharing_cores(options, num_local_ranks) <= runtime::num_cores();
  return std::chrono::microseconds(has_core ? 50 : 0);
}

bool is_under_way(const Socket& socket) {
  int num_bytes = 0;
  return ioctl(socket.descriptor(), SIOCOUTQ, &num_bytes) == 0 && num_bytes > 0;
}

enum class FrameKind : std::uint32_t { announce = 1, data, message, failure, goodbye };

// Sent as it lies: all ranks run the same program, on machines of the same byte order.
struct FrameHeader {
  FrameKind kind = FrameKind::announce;
  CallHeader call = {};
  std::uint64_t num_bytes = 0;  // size of the payload
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(const ProcessGroupOptions& options, const std::vector<int>& peers,
               std::size_t num_local_ranks)
      : Transport({.rank = options.rank,
                   .world_size = options.world_size,
                   .name = "tcp",
                   .max_message_bytes = kMaxMessageBytes,
                   .hosts = {},
                   .names = {}}),
        announced_(static_cast<std::size_t>(options.world_size)),
        spin_time_(spin_time_for(options, num_local_ranks)),
        by_rank_(static_cast<std::size_t>(options.world_size)) {
    timeout_seconds_ = options.timeout_seconds;
    std::vector<Socket> connections = connect_ranks(options, peers);
    for (const int r : peers) {
      auto& peer = by_rank_[static_cast<std::size_t>(r)] = std::make_unique<Peer>();
      peer->rank = r;
      peer->socket = std::move(connections[static_cast<std::size_t>(r)]);
    }
    for (const int r : peers) {
      Peer& peer = this->peer(r);
      peer.reader = runtime::start_thread([this, &peer] { read_from(peer); });
    }
  }

  ~TcpTransport() override {
    constexpr std::chrono::microseconds kPause{100};
    is_leaving_ = true;
    { const std::lock_guard told(telling_); }  // a goodbye comes after the failure
    const runtime::Deadline deadline = runtime::deadline_after(
        failure_.is_set() ? kDeliverySecondsAfterFailure : kDeliverySeconds);
    for (const auto& peer : by_rank_) {
      if (peer) try_to_send(*peer, {.kind = FrameKind::goodbye}, {}, deadline);
    }
    for (const auto& peer : by_rank_) {
      if (!peer) continue;
      while (!peer->has_ended && is_under_way(peer->socket) && !runtime::has_passed(deadline)) {
        std::this_thread::sleep_for(kPause);
      }
    }
    // One peer's thread may tell all peers of a failure, so all must end before any peer does.
    for (const auto& peer : by_rank_) {
      if (peer) peer->end();
    }
  }

  // --- the calls ---

  void announce(const CollectiveCall& call) override {
    enter(call.header, call.timeout_seconds);
    announced_[static_cast<std::size_t>(rank())].publish(call_);
    for (const auto& peer : by_rank_) {
      if (peer) send(*peer, FrameKind::announce, call_, {});
    }
  }

  CallHeader announced_by(int peer) override {
    const Announcements& theirs = announced_[static_cast<std::size_t>(peer)];
    wait_for(this->peer(peer), [&] { return theirs.has_reached(call_.sequence); });
    return theirs.call(call_.sequence);
  }

  void post(Use use, int to, const CallHeader& call, Bytes data) override {
    send(peer(to), use == Use::plan ? FrameKind::data : FrameKind::message, call, data);
  }

  Message take(Use use, int from) override {
    Peer& peer = this->peer(from);
    Inbox& inbox = peer.inbox(use);
    wait_for(peer, [&] { return inbox.frames.has_items(); });
    inbox.held = inbox.frames.take();
    return {inbox.held.header.call, inbox.held.payload()};
  }

  void release(Use use, int from) override {
    Peer& peer = this->peer(from);
    Frame held = std::exchange(peer.inbox(use).held, {});
    if (!held.memory.empty()) peer.spare.put(std::move(held.memory));
  }

  void fail(const Error& error) noexcept override {
    failure_.set(error);
    tell_failure();
  }

  void throw_if_failed() const override { failure_.throw_if_set(); }

  const Announcements* announced(int rank) const override {
    const auto r = static_cast<std::size_t>(rank);
    const bool is_member = by_rank_[r] != nullptr || rank == this->rank();
    return is_member ? &announced_[r] : nullptr;
  }

 private:
  struct Frame {
    FrameHeader header;
    std::vector<CacheLine> memory;  // so that the payload is aligned for every element type

    std::span<std::byte> payload() {
      return std::as_writable_bytes(std::span(memory)).first(header.num_bytes);
    }
    // The bytes still to be read: first the header's, then the payload's.
    std::span<std::byte> rest(std::size_t num_read) {
      if (num_read >= sizeof header) return payload().subspan(num_read - sizeof header);
      return std::as_writable_bytes(std::span(&header, 1)).subspan(num_read);
    }
  };

  // Messages that no caller has taken yet, and the one between take() and release().
  struct Inbox {
    Queue<Frame> frames;
    Frame held;
  };

  struct Peer {
    Peer() = default;
    ~Peer() { end(); }
    void end() {
      socket.shut_down();
      if (reader.joinable()) reader.join();
    }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;
    Inbox& inbox(Use use) { return inboxes[static_cast<std::size_t>(use)]; }

    int rank = 0;
    Socket socket;
    std::mutex sending;                    // held for a whole frame
    bool is_cut_off = false;               // inside a frame: nothing can follow it
    std::atomic<bool> is_awaited{false};   // a caller waits, and only the caller receives
    std::atomic<bool> was_awaited{false};  // since its own thread last looked
    std::mutex receiving;                  // guards the two members below
    Frame incoming;                        // incomplete
    std::size_t num_read = 0;              // bytes of its header and payload
    std::array<Inbox, 2> inboxes;          // by use
    Queue<std::vector<CacheLine>> spare;   // memory of frames that were released
    std::atomic<bool> has_left{false};     // it said goodbye
    std::atomic<bool> has_ended{false};    // nothing will be received any more
    std::thread reader;
  };

  // While it lives, the calling thread receives from a peer, and the peer's own thread does not.
  struct Awaiting {
    explicit Awaiting(Peer& awaited) : peer(awaited) {
      peer.was_awaited = true;
      peer.is_awaited = true;
    }
    ~Awaiting() { peer.is_awaited = false; }
    Peer& peer;
  };

  Peer& peer(int rank) const {
    Peer* peer = by_rank_[static_cast<std::size_t>(rank)].get();
    require(peer != nullptr, ErrorCode::State, "tcp", "rank {} is not a peer of this transport",
            rank);
    return *peer;
  }

  template <typename Done>
  void wait_for(Peer& peer, const Done& done) {
    const Awaiting awaiting(peer);
    const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds_);
    const auto spin_time = runtime::may_spin() ? spin_time_ : spin_time_.zero();
    auto last_news = runtime::Clock::now();
    for (;;) {
      // Read before the socket is: what came in time counts, however late this thread runs.
      const auto time = runtime::Clock::now();
      if (receive(peer)) last_news = time;
      if (done()) return;
      if (failure_.is_set()) tell_failure();
      throw_if_failed();
      if (peer.has_left) fail_and_throw(waiting_for(peer.rank).left());
      if (deadline && time >= *deadline) {
        fail_and_throw(waiting_for(peer.rank).late(describe_missing(call_.sequence)));
      }
      if (time - last_news < spin_time) continue;
      wait_for_event(peer.socket, POLLIN, runtime::earlier(deadline, time + kLook));
    }
  }

  // --- sending ---

  void send(Peer& peer, FrameKind kind, const CallHeader& call, Bytes payload) {
    throw_if_failed();
    const FrameHeader header{.kind = kind, .call = call, .num_bytes = payload.size()};
    const bool is_sent =
        try_to_send(peer, header, payload, runtime::deadline_after(timeout_seconds_));
    if (failure_.is_set()) tell_failure();
    if (is_sent) return;
    const RankWait wait{rank(), peer.rank, call, timeout_seconds_};
    fail_and_throw(wait.late(kind == FrameKind::message ? "" : describe_missing(call.sequence)));
  }

  // False when the peer does not take the frame in time. A connection that is over takes
  // everything: the peer's thread says that it is over. Receives while it waits, since the peer may
  // wait for that before it takes more; but not when it tells of a failure.
  bool try_to_send(Peer& peer, FrameHeader header, Bytes payload, runtime::Deadline deadline) {
    const std::lock_guard lock(peer.sending);
    if (peer.is_cut_off) return true;
    bool has_failed = false;
    std::optional<Awaiting> awaiting;
    std::array<iovec, 2> parts{iovec{&header, sizeof header},
                               // The kernel only reads what it sends.
                               iovec{const_cast<std::byte*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    while (parts[0].iov_len + parts[1].iov_len > 0) {
      const ssize_t sent = sendmsg(peer.socket.descriptor(), &message, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno != EAGAIN) return true;
      auto rest = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
      for (iovec& part : parts) {
        const std::size_t count = std::min(rest, part.iov_len);
        part = {static_cast<std::byte*>(part.iov_base) + count, part.iov_len - count};
        rest -= count;
      }
      if (sent >= 0) continue;
      if (failure_.is_set() && !std::exchange(has_failed, true)) {
        deadline =
            runtime::earlier(deadline, runtime::deadline_after(kDeliverySecondsAfterFailure));
      }
      short events = POLLOUT;
      bool has_news = false;
      if (!failure_.is_set()) {
        if (!awaiting) awaiting.emplace(peer);
        has_news = receive(peer);
        if (!peer.has_ended) events |= POLLIN;
      }
      const runtime::Deadline next_look = runtime::Clock::now() + kLook;
      if (!has_news) wait_for_event(peer.socket, events, runtime::earlier(deadline, next_look));
      if (!runtime::has_passed(deadline)) continue;
      peer.is_cut_off = true;
      return false;
    }
    return true;
  }

  // Tells all peers why the group failed, once.
  void tell_failure() noexcept {
    const std::lock_guard lock(telling_);
    if (std::exchange(has_told_, true)) return;
    const std::string bytes = encode(failure_.error(), kMaxFailureBytes);
    const FrameHeader header{.kind = FrameKind::failure, .num_bytes = bytes.size()};
    const runtime::Deadline deadline = runtime::deadline_after(kDeliverySecondsAfterFailure);
    for (const auto& peer : by_rank_) {
      if (peer) try_to_send(*peer, header, std::as_bytes(std::span(bytes)), deadline);
    }
  }

  // --- receiving ---

  // The life of the peer's thread: it receives what no caller waits for. A caller that waited a
  // moment ago is about to do so again, and is faster when this thread leaves it the core.
  void read_from(Peer& peer) {
    constexpr std::chrono::milliseconds kTick{1};
    while (!peer.has_ended) {
      wait_for_event(peer.socket, POLLIN, {});
      if (peer.is_awaited || peer.was_awaited.exchange(false)) {
        std::this_thread::sleep_for(kTick);
      } else {
        receive(peer);
      }
      if (failure_.is_set()) tell_failure();
    }
  }

  // Takes what has come, up to the end of a frame; says whether there was something, the end
  // included. A failure that it finds is for the caller to tell.
  bool receive(Peer& peer) {
    const std::lock_guard lock(peer.receiving);
    bool has_news = false;
    while (!peer.has_ended) {
      const std::span<std::byte> space = peer.incoming.rest(peer.num_read);
      const ssize_t count = recv(peer.socket.descriptor(), space.data(), space.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) break;
      has_news = true;
      peer.num_read += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      if (count <= 0) {
        if (!peer.has_left && !is_leaving_)
          failure_.set(ended_rank("collective", peer.rank, "is lost: its connection closed"));
        peer.has_ended = true;
        continue;
      }
      if (peer.num_read == sizeof(FrameHeader)) prepare_payload(peer);
      if (peer.num_read == sizeof(FrameHeader) + peer.incoming.header.num_bytes) {
        handle(peer, std::exchange(peer.incoming, {}));
        peer.num_read = 0;
        break;
      }
    }
    return has_news;
  }

  void prepare_payload(Peer& peer) {
    Frame& frame = peer.incoming;
    if (frame.header.num_bytes == 0) return;
    if (peer.spare.has_items()) frame.memory = peer.spare.take();
    const std::size_t num_lines = (frame.header.num_bytes + kCacheLine - 1) / kCacheLine;
    if (frame.memory.size() < num_lines) frame.memory.resize(num_lines);
  }

  void handle(Peer& peer, Frame frame) {
    switch (frame.header.kind) {
      case FrameKind::announce:
        return announced_[static_cast<std::size_t>(peer.rank)].publish(frame.header.call);
      case FrameKind::data:
        return peer.inbox(Use::plan).frames.put(std::move(frame));
      case FrameKind::message:
        return peer.inbox(Use::send).frames.put(std::move(frame));
      case FrameKind::failure: {
        const auto bytes = frame.payload();
        failure_.set(decode_error({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
        return;
      }
      case FrameKind::goodbye:
        peer.has_left = true;
    }
  }

  std::vector<Announcements> announced_;  // indexed by rank
  FirstFailure failure_;
  std::mutex telling_;  // held while all peers are told of the failure
  bool has_told_ = false;
  std::chrono::microseconds spin_time_;
  std::atomic<bool> is_leaving_{false};
  // None: this rank, and those that are no peers. Last: readers use the members above.
  std::vector<std::unique_ptr<Peer>> by_rank_;
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(const ProcessGroupOptions& options,
                                         const std::vector<int>& peers,
                                         std::size_t num_local_ranks) {
  return std::make_unique<TcpTransport>(options, peers, num_local_ranks);
}

}  // namespace lockstep::comm
