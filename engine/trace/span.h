// Spans record what happened, on which rank and lane, and when. Instrument code with ScopedSpan:
//
//   trace::ScopedSpan span(trace::Lane::compute, trace::Category::forward, "linear", num_bytes);
//
// While nothing records (the default), a ScopedSpan costs one branch on a relaxed atomic: no
// function call and no clock read. engine/trace/recorder.h turns recording on and returns the
// spans; breakdown.h and chrome_trace.h read them.
//
// Use these categories, so that breakdowns come out right:
//   step           one training step, around everything else; set_sequence(step index)
//   data           waiting for the loader, or making the batch
//   copy           moving data between devices; scatter, replicate and gather move theirs here
//   forward        )
//   backward       ) the phases of the step
//   optimizer      )
//   communication  a collective; on Lane::comm where it runs, and on Lane::host in a thread that
//                  waits for an asynchronous one
//   wait           waiting for anything else: another replica, an event, a barrier
//   host           book-keeping that is none of the above (logging, hooks, checkpoints)
//   op             one operation inside a phase; belongs to the phase around it
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "engine/core/thread_context.h"

namespace lockstep::trace {

enum class Lane : std::uint8_t { compute, comm, copy, host };

enum class Category : std::uint8_t {
  data,
  copy,
  forward,
  backward,
  communication,
  optimizer,
  wait,
  host,
  step,
  op
};

// "compute", "forward", ... as written above.
std::string_view to_string(Lane lane);
std::string_view to_string(Category category);

inline constexpr std::int64_t kNoSequence = -1;

// Span::thread of work that no OS thread did: of a device's stream, timed by its events.
inline constexpr std::uint32_t kDeviceThread = std::numeric_limits<std::uint32_t>::max();

// Span::cpu_ns of a span that was not measured by the thread's CPU clock.
inline constexpr std::int64_t kNotMeasured = -1;

// One interval [begin_ns, end_ns) of the steady clock.
struct Span {
  const char* name = "";                // must outlive the program: a literal, or from intern()
  std::int64_t begin_ns = 0;            //
  std::int64_t end_ns = 0;              //
  std::size_t num_bytes = 0;            // moved or read, if that has a meaning
  std::int64_t sequence = kNoSequence;  // number of a step or collective, counted by its caller
  int rank = 0;                         // the process in the drawing: a rank, or a device's index
  std::uint32_t thread = 0;             // the OS thread that did it, numbered from 0
  Lane lane = Lane::compute;
  Category category = Category::op;
  // The thread's CPU time during the span. Reading that clock costs more than a span does, so it is
  // only known for a thread's outermost spans on the compute lane, and for the outermost waits and
  // collectives inside those.
  std::int64_t cpu_ns = kNotMeasured;
};

// The memory in use, from time_ns on.
struct Sample {
  std::int64_t time_ns = 0;
  std::size_t num_bytes = 0;
  int rank = 0;  // as Span::rank
};

// The steady clock, in nanoseconds. Ranks that are processes of one host share it.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A copy of the text that is never freed, one per distinct text. Takes a lock, so call it during
// setup (when a module gets its name), or after checking recording().
const char* intern(std::string_view text);

// A profiler's functions, which make every ScopedSpan a named range of its thread.
struct RangeHooks {
  void (*push)(const char* name) = nullptr;
  void (*pop)() = nullptr;
};
// From now on spans are also ranges, whether or not something records. Call it once per process.
void set_range_hooks(const RangeHooks& hooks);

namespace detail {
// 0: spans cost nothing. Else the number of the current recording (0: none), and kHasRanges if
// spans are also ranges.
inline std::atomic<std::uint32_t> active_recording{0};
inline constexpr std::uint32_t kHasRanges = std::uint32_t{1} << 31;

inline constexpr int kNoTrack = std::numeric_limits<int>::min();
inline int& thread_track() {
  thread_local int track = kNoTrack;
  return track;
}
}  // namespace detail

inline bool recording() {
  return (detail::active_recording.load(std::memory_order_relaxed) & ~detail::kHasRanges) != 0;
}

// For a scope, this thread's spans without a track go to `track` instead of thread_context().rank.
// The replicas of DataParallel share one rank, so each sets its device's index.
class TrackScope {
 public:
  explicit TrackScope(int track) : saved_(detail::thread_track()) {
    detail::thread_track() = track;
  }
  ~TrackScope() { detail::thread_track() = saved_; }
  TrackScope(const TrackScope&) = delete;
  TrackScope& operator=(const TrackScope&) = delete;

 private:
  int saved_;
};

// The track of this thread's spans: from the innermost TrackScope, else thread_context().rank.
inline int current_track() {
  const int track = detail::thread_track();
  return track == detail::kNoTrack ? thread_context().rank : track;
}

// Records the time from construction to destruction, on the constructing thread.
class ScopedSpan {
 public:
  ScopedSpan(Lane lane, Category category, const char* name, std::size_t num_bytes = 0)
      : recording_(detail::active_recording.load(std::memory_order_relaxed)) {
    if (recording_ != 0) [[unlikely]] {
      open(lane, category, name, num_bytes);
    }
  }
  ~ScopedSpan() {
    if (recording_ != 0) [[unlikely]] {
      close();
    }
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

  void set_sequence(std::int64_t sequence) { sequence_ = sequence; }

  // Drops this span, because the work turned out to be something else.
  void cancel() {
    if (recording_ != 0) [[unlikely]] {
      discard();
    }
  }

 private:
  void open(Lane lane, Category category, const char* name, std::size_t num_bytes);
  void close() noexcept;
  void leave() const noexcept;
  void discard() noexcept;

  // open() sets all of these but recording_, so that a span costs no stores while nothing records.
  std::uint32_t recording_;
  int rank_;
  const char* name_;
  std::int64_t begin_ns_;
  std::size_t num_bytes_;
  std::int64_t sequence_;
  std::int64_t cpu_begin_ns_;
  Lane lane_;
  Category category_;
};

// While one of these lives, the calling thread's spans are not recorded: its work checks a run and
// does not belong to it.
class UntracedScope {
 public:
  UntracedScope();
  ~UntracedScope();
  UntracedScope(const UntracedScope&) = delete;
  UntracedScope& operator=(const UntracedScope&) = delete;

 private:
  bool was_untraced_;
};

// True if the calling thread is inside an UntracedScope.
bool is_untraced();

// Adds a span that a device timed (for example by its events), not this thread; it gets the thread
// kDeviceThread. Does nothing while nothing records.
// REQUIRES: its times are on now_ns()'s clock.
void record(Span span);

// Adds a sample of the memory in use. Does nothing while nothing records.
void record(const Sample& memory);

// Counts one call of operation ("all_reduce") by rank, for which it put num_bytes on its links: for
// a ring all-reduce 2(n-1)/n of the buffer. Counts while nothing records, too (counters.h).
void count_collective(int rank, std::string_view operation, std::size_t num_bytes);

}  // namespace lockstep::trace
