#include "engine/comm/shm_members.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <ctime>

#include "engine/comm/comm_errors.h"
#include "engine/core/files.h"

namespace lockstep::comm {
namespace {

constexpr auto kSeqCst = std::memory_order_seq_cst;

// Bytes of one message between few ranks. Larger ones cost fewer waits and more cache; measured for
// 2 ranks, 64 KiB are up to 1.6 times as slow and 256 KiB no faster.
constexpr std::size_t kLargestSlot = std::size_t{128} << 10;
constexpr std::size_t kSmallestSlot = std::size_t{4} << 10;
// All slots of a large group, if it used every one of its channels.
constexpr std::size_t kMostSlotBytes = std::size_t{256} << 20;

std::size_t slot_bytes_for(std::size_t num_ranks) {
  const std::size_t fair = kMostSlotBytes / (2 * num_ranks * num_ranks * ShmMembers::kNumSlots);
  return std::clamp(std::bit_floor(fair), kSmallestSlot, kLargestSlot);
}

std::size_t num_channels(std::size_t num_ranks) {
  return 2 * num_ranks * num_ranks;
}

std::size_t whole_pages(std::size_t num_bytes) {
  constexpr std::size_t kPage = 4096;
  return (num_bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

void SharedFutex::sleep(std::uint32_t seen, std::chrono::nanoseconds at_most) const {
  static_assert(sizeof(num_wakes_) == sizeof(std::uint32_t) &&
                std::atomic<std::uint32_t>::is_always_lock_free);
  const timespec timeout{static_cast<time_t>(at_most.count() / 1'000'000'000),
                         static_cast<long>(at_most.count() % 1'000'000'000)};
  syscall(SYS_futex, &num_wakes_, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void SharedFutex::wake() {
  num_wakes_.fetch_add(1, kSeqCst);
  syscall(SYS_futex, &num_wakes_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct alignas(kCacheLine) ShmMembers::Failure {
  enum State : std::uint32_t { none, being_written, written };
  std::atomic<std::uint32_t> state{none};
  std::uint32_t num_bytes = 0;
  char error[1 << 11] = {};  // encoded, cut off if need be
};

std::size_t ShmMembers::segment_bytes(std::size_t num_ranks) {
  return whole_pages(sizeof(Failure) + num_ranks * sizeof(Member)) +
         whole_pages(num_channels(num_ranks) * sizeof(Channel)) +
         num_channels(num_ranks) * kNumSlots * slot_bytes_for(num_ranks);
}

ShmMembers::ShmMembers(ShmSegment segment, int me, std::vector<int> ranks)
    : segment_(std::move(segment)),
      me_(me),
      ranks_(std::move(ranks)),
      slot_bytes_(slot_bytes_for(ranks_.size())),
      channels_(segment_.data() + whole_pages(sizeof(Failure) + ranks_.size() * sizeof(Member))),
      slots_(channels_ + whole_pages(num_channels(ranks_.size()) * sizeof(Channel))) {
  Member& mine = member(me_);
  if (!segment_.hold(me_)) {
    throw duplicate_rank("shared memory", rank_of(me_), fmt::format("process {}", mine.process));
  }
  mine.process = getpid();
  sched_getaffinity(0, sizeof mine.cores, &mine.cores);
  mine.has_attached.value.store(1, kSeqCst);
  wake_all();
}

ShmMembers::~ShmMembers() {
  member(me_).has_left.value.store(1, kSeqCst);
  wake_all();
}

ShmMembers::Failure& ShmMembers::failure() const {
  return *reinterpret_cast<Failure*>(segment_.data());
}

ShmMembers::Member& ShmMembers::member(int m) const {
  return reinterpret_cast<Member*>(segment_.data() + sizeof(Failure))[m];
}

std::size_t ShmMembers::channel_index(Use use, int from, int to) const {
  return (static_cast<std::size_t>(use) * ranks_.size() + static_cast<std::size_t>(from)) *
             ranks_.size() +
         static_cast<std::size_t>(to);
}

ShmMembers::Channel& ShmMembers::channel(Use use, int from, int to) const {
  return reinterpret_cast<Channel*>(channels_)[channel_index(use, from, to)];
}

std::byte* ShmMembers::slot_memory(Use use, int from, int to, std::uint64_t number) const {
  const std::size_t slot = channel_index(use, from, to) * kNumSlots + (number - 1) % kNumSlots;
  return slots_ + slot * slot_bytes_;
}

bool ShmMembers::all_have_attached() const {
  for (int m = 0; m < size(); ++m) {
    if (member(m).has_attached.value.load(kSeqCst) == 0) return false;
  }
  return true;
}

void ShmMembers::meet(double timeout_seconds, const std::function<void()>& throw_if_hopeless) {
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  while (!all_have_attached()) {
    throw_if_failed();
    throw_if_hopeless();
    if (runtime::has_passed(deadline)) {
      std::string missing;
      for (int m = 0; m < size(); ++m) {
        if (member(m).has_attached.value.load(kSeqCst) != 0) continue;
        add_to_list(missing, fmt::format("rank {}", rank_of(m)));
      }
      lockstep::fail(ErrorCode::Timeout, "shared memory", "rank {} waited {} s for {} to join",
                     rank_of(me_), timeout_seconds, missing.empty() ? "the last rank" : missing);
    }
    member(me_).futex.sleep_unless([&] { return all_have_attached() || has_failed(); },
                                   runtime::time_until(deadline, kLongestSleep));
  }
  num_spins_ = spins_worth_their_time();
}

// Spinning pays where every rank can have a core. Each may be bound to some of them only, so the
// cores that count are those of all ranks together.
unsigned ShmMembers::spins_worth_their_time() const {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int m = 0; m < size(); ++m) CPU_OR(&all, &all, &member(m).cores);
  return CPU_COUNT(&all) < size() ? runtime::kSpinRoundsOnSharedCore : runtime::kSpinRounds;
}

void ShmMembers::wake_all() const {
  for (int m = 0; m < size(); ++m) wake(m);
}

void ShmMembers::fail(const Error& error) const {
  Failure& record = failure();
  const std::string bytes = encode(error, sizeof record.error);
  std::uint32_t expected = Failure::none;
  if (!record.state.compare_exchange_strong(expected, Failure::being_written, kSeqCst)) return;
  record.num_bytes = static_cast<std::uint32_t>(bytes.copy(record.error, bytes.size()));
  record.state.store(Failure::written, kSeqCst);
  wake_all();
}

bool ShmMembers::has_failed() const {
  return failure().state.load(kSeqCst) != Failure::none;
}

void ShmMembers::throw_failure() const {
  // Written in a microsecond, unless its writer is stopped or killed in this very moment.
  const runtime::Deadline deadline = runtime::deadline_after(0.2);
  const auto is_written = [&] { return failure().state.load(kSeqCst) == Failure::written; };
  for (unsigned round = 0; !is_written() && !runtime::has_passed(deadline); ++round) {
    runtime::poll_pause(round);
  }
  if (!is_written()) {
    lockstep::fail(ErrorCode::Comm, "collective", "a rank died while it told why the group failed");
  }
  throw decode_error(
      {failure().error, std::min<std::size_t>(failure().num_bytes, sizeof failure().error)});
}

std::string ShmMembers::describe_missing(std::uint64_t sequence) const {
  std::string text;
  for (int m = 0; m < size(); ++m) {
    const Announcements& announced = member(m).announced;
    if (announced.has_reached(sequence)) continue;
    add_to_list(text, missing_rank(rank_of(m), announced.last()));
  }
  return text;
}

ShmMembers::Waited ShmMembers::look_at(int m, const runtime::Deadline& deadline) const {
  if (has_failed()) return Waited::failed;
  // In this order: a rank that leaves says so before its lock is gone.
  const bool is_alive = segment_.is_held(m);
  if (member(m).has_left.value.load(kSeqCst) != 0) return Waited::left;
  if (!is_alive) return Waited::died;
  if (runtime::has_passed(deadline)) return Waited::timed_out;
  return Waited::done;
}

// The kernel releases a process's locks a moment before it tells anybody that the process has
// ended. A rank that has found a peer dead waits for that, so that the launcher, which reports the
// rank that ended first, cannot see this rank's own end sooner.
void ShmMembers::wait_until_over(int m) const {
  constexpr int kMilliseconds = 500;  // for a process that is not of this PID namespace
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, member(m).process, 0)));
  if (!process.is_open()) return;  // over, and its number is free; or a kernel before 5.3
  pollfd end{process.descriptor(), POLLIN, 0};
  ::poll(&end, 1, kMilliseconds);
}

void ShmMembers::note_look() const {
  const std::chrono::nanoseconds now = runtime::Clock::now().time_since_epoch();
  member(me_).looked_at.value.store(now.count(), std::memory_order_relaxed);
}

bool ShmMembers::has_stopped_looking(int m) const {
  constexpr std::chrono::nanoseconds kLong = 8 * kLongestSleep;
  const std::chrono::nanoseconds now = runtime::Clock::now().time_since_epoch();
  return now.count() - member(m).looked_at.value.load(std::memory_order_relaxed) > kLong.count();
}

ShmMembers::Last ShmMembers::last_waited_for(int m) const {
  for (int hop = 0; hop < size(); ++hop) {
    const int next = member(m).waits_for.value.load(std::memory_order_acquire);
    if (next < 0) return {-1 - next, false};
    if (next == 0 || next == me_ + 1 || has_stopped_looking(m)) break;
    m = next - 1;
  }
  return {rank_of(m), true};
}

}  // namespace lockstep::comm
