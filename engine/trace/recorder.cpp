#include "engine/trace/recorder.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::trace {

std::string_view to_string(Lane lane) {
  constexpr std::array<std::string_view, 4> kNames{"compute", "comm", "copy", "host"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::string_view to_string(Category category) {
  constexpr std::array<std::string_view, 10> kNames{
      "data",      "copy", "forward", "backward", "communication",
      "optimizer", "wait", "host",    "step",     "op"};
  return kNames[static_cast<std::size_t>(category)];
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

// The spans and samples of one thread. Its lock is contended only while a recording is collected.
struct ThreadLog {
  std::mutex mutex;
  std::uint32_t thread = 0;
  std::size_t num_dropped = 0;
  std::deque<Span> spans;
  std::deque<Sample> memory;
};

// One recording, from start() on. Threads share it with the registry, so that neither a thread's
// end nor a new recording frees a log that the other still uses.
struct Session {
  std::uint32_t number = 0;
  std::int64_t began_ns = 0;
  double times_slower = 1;
  std::atomic<std::ptrdiff_t> num_blocks_left{0};
  std::mutex mutex;
  std::deque<ThreadLog> logs;
};

// The current or last recording. Never freed, so that threads may record until the very end.
struct Registry {
  std::mutex mutex;
  std::shared_ptr<Session> session = std::make_shared<Session>();
};

Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

std::shared_ptr<Session> current_session() {
  const std::lock_guard lock(registry().mutex);
  return registry().session;
}

struct LocalLog {
  std::shared_ptr<Session> session;
  ThreadLog* log = nullptr;
};
thread_local LocalLog local;
thread_local bool is_thread_untraced = false;
std::atomic<std::uint64_t> step_stride{1};  // the current or last recording's

bool is_between_recorded_steps() {
  const std::uint64_t stride = step_stride.load(std::memory_order_relaxed);
  return stride > 1 && thread_context().step % stride != 0;
}

// The calling thread's log in a recording; nullptr if the thread records nothing, or that recording
// is over and another began.
ThreadLog* log_in(std::uint32_t recording) {
  recording &= ~detail::kHasRanges;
  if (recording == 0 || is_thread_untraced) return nullptr;
  if (local.session && local.session->number == recording) [[likely]] {
    return local.log;
  }
  std::shared_ptr<Session> session = current_session();
  if (session->number != recording) return nullptr;
  const std::lock_guard lock(session->mutex);
  ThreadLog& log = session->logs.emplace_back();
  log.thread = static_cast<std::uint32_t>(session->logs.size() - 1);
  local = {std::move(session), &log};
  return &log;
}

template <typename T>
void append(ThreadLog& log, std::deque<T>& entries, const T& entry) {
  const std::lock_guard lock(log.mutex);
  const bool is_block_full = entries.size() % kBlockEntries == 0;
  if (is_block_full && local.session->num_blocks_left.fetch_sub(1) <= 0) {
    ++log.num_dropped;
  } else {
    entries.push_back(entry);
  }
}

// Sets the recording; keeps the flag that spans are ranges too.
void set_active(std::uint32_t recording) {
  std::uint32_t before = detail::active_recording.load(std::memory_order_relaxed);
  while (!detail::active_recording.compare_exchange_weak(
      before, recording | (before & detail::kHasRanges), std::memory_order_relaxed)) {
  }
}

}  // namespace

void start(const RecordOptions& options) {
  auto session = std::make_shared<Session>();
  session->began_ns = now_ns();
  session->times_slower = options.times_slower;
  session->num_blocks_left =
      static_cast<std::ptrdiff_t>((options.max_entries + kBlockEntries - 1) / kBlockEntries);
  const std::lock_guard lock(registry().mutex);
  session->number = registry().session->number + 1;
  registry().session = std::move(session);
  step_stride = std::max<std::uint64_t>(1, options.step_stride);
  set_active(registry().session->number);
}

void stop() {
  set_active(0);
}

Recording collect() {
  const std::shared_ptr<Session> session = current_session();
  Recording recording;
  recording.began_ns = session->began_ns;
  recording.times_slower = session->times_slower;
  {
    const std::lock_guard lock(session->mutex);
    for (ThreadLog& log : session->logs) {
      const std::lock_guard log_lock(log.mutex);
      // A span is appended when it ends, so a parent comes after its children.
      recording.spans.insert(recording.spans.end(), log.spans.rbegin(), log.spans.rend());
      recording.memory.insert(recording.memory.end(), log.memory.begin(), log.memory.end());
      recording.num_dropped += log.num_dropped;
    }
  }
  if (session->times_slower != 1) {  // the recording as it would be at full speed
    const auto speed_up = [&](std::int64_t& time_ns) {
      const auto since = static_cast<double>(time_ns - session->began_ns);
      time_ns = session->began_ns + static_cast<std::int64_t>(since / session->times_slower);
    };
    for (Span& span : recording.spans) {
      speed_up(span.begin_ns);
      speed_up(span.end_ns);
    }
    for (Sample& sample : recording.memory) speed_up(sample.time_ns);
  }
  std::ranges::stable_sort(recording.spans, {},
                           [](const Span& s) { return std::pair(s.begin_ns, -s.end_ns); });
  std::ranges::stable_sort(recording.memory, {}, &Sample::time_ns);
  return recording;
}

void record(Span span) {
  span.thread = kDeviceThread;
  ThreadLog* log = log_in(detail::active_recording.load(std::memory_order_relaxed));
  if (log != nullptr) append(*log, log->spans, span);
}

void record(const Sample& memory) {
  if (is_between_recorded_steps()) return;
  ThreadLog* log = log_in(detail::active_recording.load(std::memory_order_relaxed));
  if (log != nullptr) append(*log, log->memory, memory);
}

UntracedScope::UntracedScope() : was_untraced_(std::exchange(is_thread_untraced, true)) {}

UntracedScope::~UntracedScope() {
  is_thread_untraced = was_untraced_;
}

bool is_untraced() {
  return is_thread_untraced || is_between_recorded_steps();
}

namespace {

RangeHooks range_hooks;

// True while the thread is inside a compute span, or a wait in one, whose CPU time counts.
thread_local bool is_in_compute = false;
thread_local bool is_in_wait = false;

bool is_wait(Category category) {
  return category == Category::wait || category == Category::communication;
}

// The thread's flag that marks an open span of this kind, if its CPU time counts; else nullptr.
bool* measured_as(Lane lane, Category category) {
  if (is_wait(category)) return is_in_compute && !is_in_wait ? &is_in_wait : nullptr;
  return lane == Lane::compute && !is_in_compute ? &is_in_compute : nullptr;
}

// The thread's CPU clock. Reading it is a system call of up to a microsecond. But if one span
// begins as another ends, the thread has run on since the last reading, or was away for less than
// kStillRunningNs. A thread often loses its core on the way out of a system call, so a span takes
// its own times around this call: then such a gap belongs to the span and is not unattributed.
std::int64_t thread_cpu_ns() {
  constexpr std::int64_t kStillRunningNs = 2000;
  thread_local std::int64_t last_now_ns = std::numeric_limits<std::int64_t>::min();
  thread_local std::int64_t ahead_ns = 0;  // how far the steady clock is ahead of the CPU clock
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
  range_hooks = hooks;
  detail::active_recording.fetch_or(detail::kHasRanges, std::memory_order_release);
}

void ScopedSpan::open(Lane lane, Category category, const char* name, std::size_t num_bytes) {
  const std::uint32_t has_ranges = recording_ & detail::kHasRanges;
  if (has_ranges != 0) range_hooks.push(name);
  if (log_in(recording_) == nullptr || is_between_recorded_steps()) {
    recording_ = has_ranges;
    return;
  }
  rank_ = current_track();
  name_ = name;
  num_bytes_ = num_bytes;
  sequence_ = kNoSequence;
  lane_ = lane;
  category_ = category;
  begin_ns_ = now_ns();
  cpu_begin_ns_ = kNotMeasured;
  if (bool* const inside = measured_as(lane, category)) {
    *inside = true;
    cpu_begin_ns_ = thread_cpu_ns();
  }
}

// Ends a span whose CPU time counts.
void ScopedSpan::leave() const noexcept {
  (is_wait(category_) ? is_in_wait : is_in_compute) = false;
}

void ScopedSpan::close() noexcept {
  if ((recording_ & ~detail::kHasRanges) != 0) {
    std::int64_t cpu_ns = kNotMeasured;
    if (cpu_begin_ns_ != kNotMeasured) {
      cpu_ns = thread_cpu_ns() - cpu_begin_ns_;
      leave();
    }
    const std::int64_t end_ns = now_ns();
    if (ThreadLog* log = log_in(recording_)) {
      append(*log, log->spans,
             Span{name_, begin_ns_, end_ns, num_bytes_, sequence_, rank_, log->thread, lane_,
                  category_, cpu_ns});
    }
  }
  if ((recording_ & detail::kHasRanges) != 0) range_hooks.pop();
}

void ScopedSpan::discard() noexcept {
  if ((recording_ & detail::kHasRanges) != 0) range_hooks.pop();
  if ((recording_ & ~detail::kHasRanges) != 0 && cpu_begin_ns_ != kNotMeasured) leave();
  recording_ = 0;
}

}  // namespace lockstep::trace
