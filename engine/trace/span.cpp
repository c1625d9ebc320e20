#include "engine/trace/span.h"

#include <ctime>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "engine/trace/thread_log.h"

namespace lockstep::trace {

std::string_view to_string(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::comm:
      return "comm";
    case Lane::copy:
      return "copy";
    case Lane::host:
      return "host";
  }
  return "?";
}

std::string_view to_string(Category category) {
  switch (category) {
    case Category::data:
      return "data";
    case Category::copy:
      return "copy";
    case Category::forward:
      return "forward";
    case Category::backward:
      return "backward";
    case Category::communication:
      return "communication";
    case Category::optimizer:
      return "optimizer";
    case Category::wait:
      return "wait";
    case Category::host:
      return "host";
    case Category::step:
      return "step";
    case Category::op:
      return "op";
  }
  return "?";
}

const char* intern(std::string_view text) {
  static std::mutex mutex;
  static auto& texts = *new std::set<std::string, std::less<>>;  // never freed: spans point into it
  const std::lock_guard lock(mutex);
  auto found = texts.find(text);
  if (found == texts.end()) {
    found = texts.emplace(text).first;
  }
  return found->c_str();
}

namespace {

RangeHooks& range_hooks() {
  static RangeHooks hooks;
  return hooks;
}

// What this thread is inside of, of the spans whose CPU time counts.
thread_local bool is_in_compute = false;
thread_local bool is_in_wait = false;

// The flag of the thread that a span of this kind sets while it is open, if its CPU time counts.
bool* measured_as(Lane lane, Category category) {
  const bool waits = category == Category::wait || category == Category::communication;
  if (waits) return is_in_compute && !is_in_wait ? &is_in_wait : nullptr;
  return lane == Lane::compute && !is_in_compute ? &is_in_compute : nullptr;
}

// The thread's CPU clock. To read it is a system call of up to a microsecond; but where one span
// begins as another ends, it has run on since the last reading, or was away for less than
// kStillRunningNs. A thread often loses its core on the way out of a system call, so a span takes
// its own times around this: what nobody computes in is not what nobody instrumented.
std::int64_t thread_cpu_ns() {
  constexpr std::int64_t kStillRunningNs = 2000;
  thread_local std::int64_t last_now_ns = std::numeric_limits<std::int64_t>::min();
  thread_local std::int64_t ahead_ns = 0;  // of the steady clock before the CPU's
  std::int64_t now = now_ns();
  if (now - kStillRunningNs > last_now_ns) {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    now = now_ns();
    last_now_ns = now;
    ahead_ns = now - (std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec);
  }
  return now - ahead_ns;
}

}  // namespace

void set_range_hooks(const RangeHooks& hooks) {
  range_hooks() = hooks;
  detail::active_recording.fetch_or(detail::kHasRanges, std::memory_order_release);
}

void ScopedSpan::open(Lane lane, Category category, const char* name, std::size_t num_bytes,
                      int track) {
  const std::uint32_t has_ranges = recording_ & detail::kHasRanges;
  if (has_ranges != 0) range_hooks().push(name);
  detail::ThreadLog* log = detail::thread_log(recording_ & ~detail::kHasRanges);
  if (log == nullptr) {
    recording_ = has_ranges;
    return;
  }
  rank_ = track;
  name_ = name;
  num_bytes_ = num_bytes;
  sequence_ = kNoSequence;
  id_ = log->next_id();
  lane_ = lane;
  category_ = category;
  begin_ns_ = now_ns();
  cpu_begin_ns_ = kNotMeasured;
  if (bool* const inside = measured_as(lane, category)) {
    *inside = true;
    cpu_begin_ns_ = thread_cpu_ns();
  }
}

// Of a span that was opened as one whose CPU time counts: it is over.
void ScopedSpan::leave() const noexcept {
  const bool waits = category_ == Category::wait || category_ == Category::communication;
  (waits ? is_in_wait : is_in_compute) = false;
}

void ScopedSpan::append() noexcept {
  std::int64_t cpu_ns = kNotMeasured;
  if (cpu_begin_ns_ != kNotMeasured) {
    cpu_ns = thread_cpu_ns() - cpu_begin_ns_;
    leave();
  }
  const std::int64_t end_ns = now_ns();
  if (detail::ThreadLog* log = detail::thread_log(recording_ & ~detail::kHasRanges)) {
    log->append(Span{name_, begin_ns_, end_ns, num_bytes_, sequence_, id_, rank_, log->thread(),
                     lane_, category_, cpu_ns});
  }
}

void ScopedSpan::close() noexcept {
  if ((recording_ & ~detail::kHasRanges) != 0) append();
  if ((recording_ & detail::kHasRanges) != 0) range_hooks().pop();
}

void ScopedSpan::discard() noexcept {
  if ((recording_ & detail::kHasRanges) != 0) range_hooks().pop();
  if ((recording_ & ~detail::kHasRanges) != 0 && cpu_begin_ns_ != kNotMeasured) leave();
  recording_ = 0;
}

void ScopedSpan::add_flow_point(std::uint64_t flow) {
  if (detail::ThreadLog* log = detail::thread_log(recording_ & ~detail::kHasRanges)) {
    log->append(FlowPoint{flow, id_, now_ns()});
  }
}

}  // namespace lockstep::trace
