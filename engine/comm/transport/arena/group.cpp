#include "engine/comm/transport/arena/group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "engine/comm/absent_rank.h"
#include "engine/comm/error_bytes.h"
#include "engine/comm/rank_taken.h"
#include "engine/core/files.h"

namespace lockstep::comm::arena {
namespace {

constexpr auto kOrder = std::memory_order_seq_cst;

}  // namespace

Group::Group(std::shared_ptr<Arena> arena, Messages messages, int me, std::vector<int> ranks)
    : arena_(std::move(arena)),
      layout_(static_cast<int>(ranks.size()), messages),
      memory_(arena_->data()),
      me_(me),
      ranks_(std::move(ranks)) {
  if (!arena_->hold(me_)) {
    throw rank_taken("shared memory", name_of(me_),
                     fmt::format("process {}", int{member(me_).process}));
  }
  Member& mine = member(me_);
  mine.process = getpid();
  sched_getaffinity(0, sizeof mine.cores, &mine.cores);
  mine.has_attached.value.store(1, kOrder);
  ring_all();
}

Group::~Group() {
  member(me_).has_left.value.store(1, kOrder);
  ring_all();
}

bool Group::all_have_attached() const {
  for (int m = 0; m < size(); ++m) {
    if (member(m).has_attached.value.load(kOrder) == 0) return false;
  }
  return true;
}

void Group::meet(double timeout_seconds, const std::function<void()>& throw_if_hopeless) {
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  while (!all_have_attached()) {
    throw_if_failed();
    throw_if_hopeless();
    if (runtime::has_passed(deadline)) require_all_attached(timeout_seconds);
    doze([&] { return all_have_attached() || has_failed(); }, deadline,
         std::chrono::milliseconds(64));
  }
  num_spins_ = spins_worth_their_time();
}

void Group::require_all_attached(double timeout_seconds) const {
  std::string missing;
  for (int m = 0; m < size(); ++m) {
    if (member(m).has_attached.value.load(kOrder) != 0) continue;
    add_to_list(missing, fmt::format("rank {}", name_of(m)));
  }
  if (missing.empty()) return;
  lockstep::fail(ErrorCode::Timeout, "shared memory", "rank {} waited {} s for {} to join",
                 name_of(me_), timeout_seconds, missing);
}

// Spinning pays where every rank can have a core. Each may be bound to some of them only, so the
// cores that count are those of all ranks together.
unsigned Group::spins_worth_their_time() const {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int m = 0; m < size(); ++m) CPU_OR(&all, &all, &member(m).cores);
  return CPU_COUNT(&all) < size() ? runtime::kSpinRoundsOnSharedCore : runtime::kSpinRounds;
}

void Group::ring_all() const {
  for (int m = 0; m < size(); ++m) ring(m);
}

void Group::fail(const Error& error) const {
  Failure& record = failure();
  const std::string bytes = encode(error, sizeof record.error);
  std::uint32_t expected = Failure::none;
  if (!record.state.compare_exchange_strong(expected, Failure::being_written, kOrder)) return;
  record.num_bytes = static_cast<std::uint32_t>(bytes.copy(record.error, bytes.size()));
  record.state.store(Failure::written, kOrder);
  ring_all();
}

void Group::throw_failure() const {
  // Written in a microsecond, unless its writer is stopped or killed in this very moment.
  const runtime::Deadline deadline = runtime::deadline_after(0.2);
  const auto is_written = [&] { return failure().state.load(kOrder) == Failure::written; };
  for (unsigned round = 0; !is_written() && !runtime::has_passed(deadline); ++round) {
    runtime::poll_pause(round);
  }
  if (!is_written()) {
    lockstep::fail(ErrorCode::Comm, "collective", "a rank died while it told why the group failed");
  }
  throw decode_error(
      {failure().error, std::min<std::size_t>(failure().num_bytes, sizeof failure().error)});
}

Waited Group::look_at(int m, const runtime::Deadline& deadline) const {
  if (has_failed()) return Waited::failed;
  // In this order: a rank that leaves says so before its lock is gone.
  const bool is_alive = arena_->is_held(m);
  if (member(m).has_left.value.load(kOrder) != 0) return Waited::left;
  if (!is_alive) return Waited::died;
  if (runtime::has_passed(deadline)) return Waited::timed_out;
  return Waited::done;
}

void Group::wait_until_over(int m) const {
  constexpr int kMilliseconds = 500;  // for a process that is not of this PID namespace
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, member(m).process, 0)));
  if (!process.is_open()) return;  // over, and its number is free; or a kernel before 5.3
  pollfd end{process.descriptor(), POLLIN, 0};
  ::poll(&end, 1, kMilliseconds);
}

void Group::note_look() const {
  const std::chrono::nanoseconds now = runtime::Clock::now().time_since_epoch();
  member(me_).looked_at.value.store(now.count(), std::memory_order_relaxed);
}

bool Group::has_stopped_looking(int m) const {
  constexpr std::chrono::nanoseconds kLong = 8 * kLongestSleep;
  const std::chrono::nanoseconds now = runtime::Clock::now().time_since_epoch();
  return now.count() - member(m).looked_at.value.load(std::memory_order_relaxed) > kLong.count();
}

Group::Last Group::last_waited_for(int m) const {
  for (int hop = 0; hop < size(); ++hop) {
    const int next = member(m).waits_for.value.load(std::memory_order_acquire);
    if (next < 0) return {-1 - next, Last::Where::elsewhere};
    if (next == 0 || next == me_ + 1 || has_stopped_looking(m)) break;
    m = next - 1;
  }
  return {name_of(m), Last::Where::here};
}

std::string Group::describe_missing(std::uint64_t sequence) const {
  std::string text;
  for (int m = 0; m < size(); ++m) {
    const Announcements& announced = member(m).announced;
    if (announced.has_reached(sequence)) continue;
    add_to_list(text, missing_rank(name_of(m), announced.last()));
  }
  return text;
}

}  // namespace lockstep::comm::arena
