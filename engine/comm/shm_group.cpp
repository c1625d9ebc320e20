// The transport between processes of one host. A message is copied into a slot of the memory that
// they share, and its receiver reads it there. A slot is small: larger chunks travel in pieces, so
// that a piece is still in a cache when it is read.
//
// Messages of send(), a CallHeader and the data, go through channels of their own. A thread copies
// them and hands them over, so that a sender never waits for its receiver.
//
// The processes share:
//   Failure            the group's failure
//   Member[n]          a rank's state, for all others: has it left, what has it called
//   Channel[2][n][n]   messages of collectives, and those of send(), by sender and receiver
//   slots              the memory of the messages, kNumSlots for each channel
// All zeros is the right initial state. Every flag has one writer. Untouched pages cost nothing, so
// the largest group shares this layout too.
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "engine/comm/announcements.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/shm_segment.h"
#include "engine/comm/transport.h"
#include "engine/core/files.h"
#include "engine/runtime/threads.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {
namespace {

constexpr auto kSeqCst = std::memory_order_seq_cst;

constexpr std::size_t kNumSlots = 8;
// Bytes of one message between few ranks. Larger ones cost fewer waits and more cache; measured for
// 2 ranks, 64 KiB are up to 1.6 times as slow and 256 KiB no faster.
constexpr std::size_t kLargestSlot = std::size_t{128} << 10;
constexpr std::size_t kSmallestSlot = std::size_t{4} << 10;
// The slots of a large group may take so much memory, if every channel is used.
constexpr std::size_t kMostSlotBytes = std::size_t{256} << 20;

// A death does not wake sleepers, so they check now and then that their peer is alive.
constexpr std::chrono::milliseconds kLongestSleep{64};

std::size_t num_channels(std::size_t num_ranks) {
  return 2 * num_ranks * num_ranks;
}

std::size_t slot_bytes_for(std::size_t num_ranks) {
  const std::size_t fair = kMostSlotBytes / (num_channels(num_ranks) * kNumSlots);
  return std::clamp(std::bit_floor(fair), kSmallestSlot, kLargestSlot);
}

std::size_t whole_pages(std::size_t num_bytes) {
  constexpr std::size_t kPage = 4096;
  return (num_bytes + kPage - 1) / kPage * kPage;
}

GroupShape shape_of(const ProcessGroupOptions& options, const std::vector<int>& ranks) {
  GroupShape shape;
  shape.rank = static_cast<int>(std::ranges::find(ranks, options.rank) - ranks.begin());
  shape.world_size = static_cast<int>(ranks.size());
  shape.names = ranks;
  shape.name = "shm";
  shape.max_message_bytes = slot_bytes_for(ranks.size());
  // Each rank's part of a pass is then one message.
  shape.pass_bytes = ranks.size() * shape.max_message_bytes;
  return shape;
}

// The first rank makes the segment and tells the others its address.
ShmSegment share_segment(const ProcessGroupOptions& options, int first_rank,
                         std::size_t num_bytes) {
  const std::string key = fmt::format("group/{}/segment/{}", options.group, first_rank);
  if (options.rank == first_rank) {
    ShmSegment segment = ShmSegment::create(num_bytes);
    options.store->set(key, segment.address());
    return segment;
  }
  const std::string address =
      options.store->get(key, runtime::deadline_after(options.timeout_seconds));
  return ShmSegment::open(address, num_bytes, fmt::format("rank {}", first_rank));
}

// Smaller copies are as fast through the caches.
constexpr std::size_t kFewBytes = 1024;

#if defined(__SSE2__)
// Returns the bytes copied: all whole lines.
std::size_t stream_lines(std::byte* to, Bytes data) {
  const std::size_t num_bytes = data.size() / kCacheLine * kCacheLine;
  for (std::size_t line = 0; line < num_bytes; line += kCacheLine) {
    const auto* from = reinterpret_cast<const __m128i*>(data.data() + line);
    auto* out = reinterpret_cast<__m128i*>(to + line);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // such stores are not ordered with later ones by themselves
  return num_bytes;
}
#else
std::size_t stream_lines(std::byte*, Bytes) {
  return 0;
}
#endif

// Copies to memory that another core will read, past this core's caches. Other cores see what is
// stored after this call only after the copy. REQUIRES: `to` is aligned to 64 bytes.
//
// A plain store first fetches the line that it overwrites, which lies in the cache of the reader
// that has just read it; the reader then fetches it back from here. Stores that bypass the caches
// avoid both. Measured on two cores that share no cache, all-reduce of 2 ranks: 16 KiB 9.7 -> 3.0
// us, 4 MiB 1.95 -> 0.29 ms, 64 MiB 37 -> 6.3 ms; if the cores share a cache, 4 MiB 0.24 -> 0.29
// ms.
void streaming_copy(std::byte* to, Bytes data) {
  const std::size_t done = data.size() < kFewBytes ? 0 : stream_lines(to, data);
  if (done < data.size()) std::memcpy(to + done, data.data() + done, data.size() - done);
}

std::int64_t nanoseconds_now() {
  return std::chrono::nanoseconds(runtime::Clock::now().time_since_epoch()).count();
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(const ProcessGroupOptions& options, const std::vector<int>& ranks)
      : Transport(shape_of(options, ranks)),
        channels_at_(whole_pages(sizeof(Failure) + ranks.size() * sizeof(Member))),
        slots_at_(channels_at_ + whole_pages(num_channels(ranks.size()) * sizeof(Channel))),
        segment_(share_segment(
            options, ranks.front(),
            slots_at_ + num_channels(ranks.size()) * kNumSlots * shape().max_message_bytes)),
        num_posted_(ranks.size()),
        num_released_(ranks.size()),
        num_received_(ranks.size()),
        outboxes_(ranks.size()) {
    timeout_seconds_ = options.timeout_seconds;
    mine().process = getpid();
    sched_getaffinity(0, sizeof mine().cores, &mine().cores);
    options.store->barrier(fmt::format("shared memory {}", options.group), options.rank,
                           options.world_size, options.timeout_seconds);
    num_spins_ = choose_num_spins();
    for (int m = 0; m < world_size(); ++m) {
      const int process = member(m).process;
      const bool is_other = process != getpid();
      processes_.emplace_back(is_other ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0))
                                       : -1);
    }
  }

  // Waits until the slots have taken everything that was sent.
  ~ShmTransport() override {
    closing_deadline_ = runtime::deadline_after(timeout_seconds_);
    is_closing_.store(true);
    outboxes_.clear();
    mine().has_left.value.store(1, kSeqCst);
    mine().num_changes.add(1);
  }

  // --- collectives ---

  void announce(const CallHeader& call, double timeout_seconds) override {
    enter(call, timeout_seconds);
    mine().announced.publish(call);
    mine().num_changes.add(1);
  }

  CallHeader announced_by(int peer) override {
    const Announcements& theirs = member(peer).announced;
    wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
    return theirs.call(call_.sequence);
  }

  void post(int to, Bytes data) override {
    const std::uint64_t number = ++num_posted_[static_cast<std::size_t>(to)];
    const Channel& channel = this->channel(Use::collective, rank(), to);
    if (number > kNumSlots) wait_for(to, [&] { return channel.is_free_for(number); });
    write_slot(Use::collective, to, number, data);
  }

  const std::byte* take(int from) override {
    const std::uint64_t number = num_released_[static_cast<std::size_t>(from)] + 1;
    return read_slot(Use::collective, from, number).data();
  }

  void release(int from) override {
    free_slot(Use::collective, from, ++num_released_[static_cast<std::size_t>(from)]);
  }

  // --- send and recv ---

  void send_message(int to, const CallHeader& call, Bytes data) override {
    throw_if_failed();
    const Bytes header = std::as_bytes(std::span(&call, 1));
    std::vector<std::byte> message(header.begin(), header.end());
    message.insert(message.end(), data.begin(), data.end());
    Outbox& outbox = outboxes_[static_cast<std::size_t>(to)];
    if (outbox.worker == nullptr) outbox.worker = std::make_unique<runtime::Worker>("send");
    outbox.worker->post([this, to, message = std::move(message)] { push(to, message); });
  }

  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override {
    enter(call, timeout_seconds);
    bool has_header = false;
    do {
      const std::uint64_t number = ++num_received_[static_cast<std::size_t>(from)];
      Bytes piece = read_slot(Use::send_recv, from, number);
      if (!std::exchange(has_header, true)) {
        CallHeader sent;
        std::memcpy(&sent, piece.data(), sizeof sent);
        piece = piece.subspan(sizeof sent);
        require_same_message(from, sent, sent.num_elements == call.num_elements);
      }
      std::ranges::copy(piece, data.begin());
      data = data.subspan(piece.size());
      free_slot(Use::send_recv, from, number);
    } while (!data.empty());
  }

  // --- failing ---

  void fail(const Error& error) noexcept override {
    Failure& record = failure();
    const std::string bytes = encode(error, sizeof record.error);
    std::uint32_t expected = Failure::none;
    if (!record.state.compare_exchange_strong(expected, Failure::being_written, kSeqCst)) return;
    record.num_bytes = static_cast<std::uint32_t>(bytes.copy(record.error, bytes.size()));
    record.state.store(Failure::written, kSeqCst);
    for (int m = 0; m < world_size(); ++m) member(m).num_changes.add(1);  // wakes those who wait
  }

  void throw_if_failed() const override {
    const Failure& record = failure();
    if (record.state.load(kSeqCst) == Failure::none) return;
    // It is written within a microsecond, unless its writer is stopped or killed at that very
    // moment.
    const runtime::Deadline deadline = runtime::deadline_after(0.2);
    for (unsigned round = 0; record.state.load(kSeqCst) != Failure::written; ++round) {
      require(!runtime::has_passed(deadline), ErrorCode::Comm, "collective",
              "a rank died while it told why the group failed");
      runtime::poll_pause(round);
    }
    throw decode_error(
        {record.error, std::min<std::size_t>(record.num_bytes, sizeof record.error)});
  }

  const Announcements* announced(int rank) const override { return &member(rank).announced; }

 private:
  // --- the segment ---

  struct alignas(kCacheLine) Failure {
    enum State : std::uint32_t { none, being_written, written };
    std::atomic<std::uint32_t> state{none};
    std::uint32_t num_bytes = 0;
    char error[1 << 11] = {};  // encoded, cut off if need be
  };

  struct Member {
    Announcements announced;
    Flag<std::uint32_t> has_left;
    // When a waiting member last looked if it must go on waiting, in nanoseconds of runtime::Clock,
    // which is the same for all processes of a host.
    Flag<std::int64_t> looked_at;
    std::int32_t process = 0;
    cpu_set_t cores;                                    // those that it may run on
    alignas(kCacheLine) runtime::WaitWord num_changes;  // counts what it has written for others
  };

  // Messages from one rank to another. Message number k, counted from 1, is in slot
  // (k - 1) % kNumSlots until num_released reaches k.
  struct alignas(kCacheLine) Slot {
    std::atomic<std::uint64_t> number{0};  // number of the message in it
    std::size_t num_bytes = 0;
  };

  struct Channel {
    std::array<Slot, kNumSlots> slots;
    Flag<std::uint64_t> num_released;

    Slot& slot(std::uint64_t number) { return slots[(number - 1) % kNumSlots]; }
    // True if the slot for this message has been released.
    bool is_free_for(std::uint64_t number) const {
      return num_released.value.load(std::memory_order_acquire) + kNumSlots >= number;
    }
  };

  enum class Use : std::size_t { collective, send_recv };

  Failure& failure() const { return *reinterpret_cast<Failure*>(segment_.data()); }
  Member& member(int m) const {
    return reinterpret_cast<Member*>(segment_.data() + sizeof(Failure))[m];
  }
  Member& mine() const { return member(rank()); }

  std::size_t channel_index(Use use, int from, int to) const {
    const auto n = static_cast<std::size_t>(world_size());
    return (static_cast<std::size_t>(use) * n + static_cast<std::size_t>(from)) * n +
           static_cast<std::size_t>(to);
  }

  Channel& channel(Use use, int from, int to) const {
    return reinterpret_cast<Channel*>(segment_.data() + channels_at_)[channel_index(use, from, to)];
  }

  std::byte* slot_memory(Use use, int from, int to, std::uint64_t number) const {
    const std::size_t slot = channel_index(use, from, to) * kNumSlots + (number - 1) % kNumSlots;
    return segment_.data() + slots_at_ + slot * shape().max_message_bytes;
  }

  // Spinning pays if every rank can have a core. Each rank may be bound to some of them, so the
  // cores that count are those of all ranks together.
  unsigned choose_num_spins() const {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int m = 0; m < world_size(); ++m) CPU_OR(&all, &all, &member(m).cores);
    return CPU_COUNT(&all) < world_size() ? runtime::kSpinRoundsOnSharedCore : runtime::kSpinRounds;
  }

  // --- waiting ---

  enum class Waited { done, failed, left, died, timed_out };

  // Returns when the peer has made done() true; else fails the group.
  template <typename Done>
  void wait_for(int peer, const Done& done) {
    if (runtime::spin_until(done, num_spins_)) return;
    const Waited waited = sleep_until(peer, runtime::deadline_after(timeout_seconds_), done);
    if (waited != Waited::done) fail_waiting(peer, waited);
  }

  // Any thread of this process.
  template <typename Done>
  Waited sleep_until(int peer, const runtime::Deadline& deadline, const Done& done) const {
    for (;;) {
      mine().looked_at.value.store(nanoseconds_now(), std::memory_order_relaxed);
      // Before done(), since the peer's last writes before it left still count.
      const std::uint32_t seen = member(peer).num_changes.load();
      const Waited waited = look_at(peer, deadline);
      if (done()) return Waited::done;
      if (waited != Waited::done) return waited;
      const runtime::Deadline next_look = runtime::Clock::now() + kLongestSleep;
      member(peer).num_changes.sleep_while_equal(seen, runtime::earlier(deadline, next_look));
    }
  }

  // The state of the member that this one waits for; done: nothing new, keep waiting.
  Waited look_at(int peer, const runtime::Deadline& deadline) const {
    if (failure().state.load(kSeqCst) != Failure::none) return Waited::failed;
    // In this order: a rank that leaves says so before its process ends.
    const bool is_alive = this->is_alive(peer);
    if (member(peer).has_left.value.load(kSeqCst) != 0) return Waited::left;
    if (!is_alive) return Waited::died;
    return runtime::has_passed(deadline) ? Waited::timed_out : Waited::done;
  }

  // The kernel tells this only after it has reported the end of the process. So a launcher, which
  // blames the rank that ended first, cannot see the end of this rank sooner.
  bool is_alive(int peer) const {
    const FileDescriptor& process = processes_[static_cast<std::size_t>(peer)];
    if (!process.is_open()) return ::kill(member(peer).process, 0) == 0;  // a kernel before 5.3
    pollfd end{process.descriptor(), POLLIN, 0};
    return ::poll(&end, 1, 0) != 1;  // a signal may interrupt it
  }

  [[noreturn]] void fail_waiting(int peer, Waited waited) {
    RankWait wait = waiting_for(peer);
    if (waited == Waited::died) fail_and_throw(wait.died(member(peer).process));
    if (waited != Waited::timed_out) fail_and_throw(wait.left());  // or what broke the group
    if (call_.operation == Operation::recv) fail_and_throw(wait.late(""));
    wait.peer = name_of_rank(find_stopped(peer));
    fail_and_throw(wait.late(describe_missing(call_.sequence)));
  }

  // The rank that keeps all others waiting: the peer, or, if the peer itself waits, another rank
  // that has not looked for a while.
  int find_stopped(int peer) const {
    constexpr std::chrono::nanoseconds kLong = 8 * kLongestSleep;
    const auto has_stopped = [&](int m) {
      return nanoseconds_now() - member(m).looked_at.value.load(std::memory_order_relaxed) >
             kLong.count();
    };
    if (has_stopped(peer)) return peer;
    for (int m = 0; m < world_size(); ++m) {
      if (has_stopped(m)) return m;
    }
    return peer;
  }

  // --- slots ---

  // REQUIRES: the slot is free.
  void write_slot(Use use, int to, std::uint64_t number, Bytes data) {
    streaming_copy(slot_memory(use, rank(), to, number), data);
    Slot& slot = channel(use, rank(), to).slot(number);
    slot.num_bytes = data.size();
    slot.number.store(number, std::memory_order_release);
    mine().num_changes.add(1);
  }

  // Waits for the message; valid until free_slot().
  Bytes read_slot(Use use, int from, std::uint64_t number) {
    const Slot& slot = channel(use, from, rank()).slot(number);
    wait_for(from, [&] { return slot.number.load(std::memory_order_acquire) == number; });
    return {slot_memory(use, from, rank(), number), slot.num_bytes};
  }

  void free_slot(Use use, int from, std::uint64_t number) {
    channel(use, from, rank()).num_released.value.store(number, std::memory_order_release);
    mine().num_changes.add(1);
  }

  // Messages of send() on their way to one rank.
  struct Outbox {
    std::uint64_t num_posted = 0;             // slots
    std::unique_ptr<runtime::Worker> worker;  // made when first needed
  };

  // Sends it in pieces; runs in the outbox's thread.
  void push(int to, Bytes message) {
    while (!message.empty()) {
      const std::uint64_t number = ++outboxes_[static_cast<std::size_t>(to)].num_posted;
      if (!wait_for_slot(to, number)) return;
      const Bytes piece = message.first(std::min(message.size(), shape().max_message_bytes));
      write_slot(Use::send_recv, to, number, piece);
      message = message.subspan(piece.size());
    }
  }

  // False if the receiver is gone, or this rank need not wait any longer.
  bool wait_for_slot(int to, std::uint64_t number) {
    const Channel& channel = this->channel(Use::send_recv, rank(), to);
    const auto is_free = [&] { return channel.is_free_for(number); };
    if (runtime::spin_until(is_free, num_spins_)) return true;
    Waited waited = Waited::timed_out;
    while (waited == Waited::timed_out) {
      if (is_closing_.load() && runtime::has_passed(closing_deadline_)) return false;
      waited = sleep_until(to, runtime::deadline_after(0.1), is_free);
    }
    return waited == Waited::done;
  }

  std::size_t channels_at_;  // offset in the segment
  std::size_t slots_at_;
  ShmSegment segment_;
  unsigned num_spins_ = 0;                   // set when all have attached
  std::vector<FileDescriptor> processes_;    // each other process's pidfd
  std::vector<std::uint64_t> num_posted_;    // to each rank, in collectives
  std::vector<std::uint64_t> num_released_;  // each rank's messages in collectives
  std::vector<std::uint64_t> num_received_;  // slots of what each rank sent by send()
  runtime::Deadline closing_deadline_;       // written before is_closing_
  std::atomic<bool> is_closing_{false};
  std::vector<Outbox> outboxes_;  // to each rank
};

}  // namespace

std::unique_ptr<Transport> shm_transport(const ProcessGroupOptions& options,
                                         const std::vector<int>& ranks) {
  return std::make_unique<ShmTransport>(options, ranks);
}

}  // namespace lockstep::comm
