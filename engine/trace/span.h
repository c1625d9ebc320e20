// Spans: what happened, on which rank and lane, from when to when. Instrument code with ScopedSpan:
//
//   trace::ScopedSpan span(trace::Lane::compute, trace::Category::forward, "linear", num_bytes);
//
// While nothing records (the default), a ScopedSpan costs one branch on a relaxed atomic: no
// function call and no clock read. engine/trace/recorder.h turns recording on and hands the spans
// out; breakdown.h and chrome_trace.h read them.
//
// Which category to use, so that breakdowns come out right:
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

// Span::thread of work that no OS thread did: a device's stream, timed by its events.
inline constexpr std::uint32_t kDeviceThread = std::numeric_limits<std::uint32_t>::max();

// Span::cpu_ns of a span for which nobody read the thread's CPU clock.
inline constexpr std::int64_t kNotMeasured = -1;

// One interval [begin_ns, end_ns) of the steady clock.
struct Span {
  const char* name = "";                // lives as long as the program: a literal, or intern()
  std::int64_t begin_ns = 0;            //
  std::int64_t end_ns = 0;              //
  std::size_t num_bytes = 0;            // moved or read, where that has a meaning
  std::int64_t sequence = kNoSequence;  // of a step or a collective, as its caller counts them
  std::uint64_t id = 0;                 // unique in a recording; grows within one thread
  int rank = 0;                         // the process in the picture: a rank, or a device's index
  std::uint32_t thread = 0;             // the OS thread that did it, numbered from 0
  Lane lane = Lane::compute;
  Category category = Category::op;
  // CPU time of the thread meanwhile: what it had of a core. Reading that clock costs more than a
  // span does, so it is known only of a thread's outermost spans on the compute lane, and of the
  // outermost waits and collectives inside those.
  std::int64_t cpu_ns = kNotMeasured;
};

// "Flow `flow` passes through span `span` at time_ns." The points of one flow, in order of time,
// are the arrows of the picture: gradient ready -> bucket -> all-reduce -> optimizer.
struct FlowPoint {
  std::uint64_t flow = 0;
  std::uint64_t span = 0;  // Span::id
  std::int64_t time_ns = 0;
};

// From time_ns on it was so many bytes: the memory in use, or what was under way.
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

// A flow's number, the same wherever it is computed: of parameter `index` in step `step` of a rank.
// Unique for ranks below 2^12, 2^32 steps and 2^20 indices.
constexpr std::uint64_t flow_id(int rank, std::size_t step, std::size_t index) {
  return (static_cast<std::uint64_t>(rank) & 0xfff) << 52 |
         (static_cast<std::uint64_t>(step) & 0xffffffff) << 20 |
         (static_cast<std::uint64_t>(index) & 0xfffff);
}

// A copy of text that is never freed, one per distinct text. Takes a lock: call it when something
// is set up (a module gets its name), or behind recording().
const char* intern(std::string_view text);

// Somebody else who wants every ScopedSpan as a named range of its thread: a profiler.
struct RangeHooks {
  void (*push)(const char* name) = nullptr;
  void (*pop)() = nullptr;
};
// From now on spans are ranges too, whether or not something records. Once per process.
void set_range_hooks(const RangeHooks& hooks);

namespace detail {
// 0: spans cost nothing. Else the number of the recording in progress (0: none), and kHasRanges
// where spans are ranges too.
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

// Spans of this thread that name no track go to `track`, not to thread_context().rank, for a scope.
// The replicas of DataParallel share one rank: each sets its device's index.
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

// The track of this thread's spans: that of the innermost TrackScope, else thread_context().rank.
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
      open(lane, category, name, num_bytes, current_track());
    }
  }
  ScopedSpan(Lane lane, Category category, const char* name, std::size_t num_bytes, int track)
      : recording_(detail::active_recording.load(std::memory_order_relaxed)) {
    if (recording_ != 0) [[unlikely]] {
      open(lane, category, name, num_bytes, track);
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

  // Nothing is recorded of this span: it turned out not to be what it was opened for.
  void cancel() {
    if (recording_ != 0) [[unlikely]] {
      discard();
    }
  }

  // A flow passes through this span now.
  void pass_flow(std::uint64_t flow) {
    if (recording_ != 0) [[unlikely]] {
      add_flow_point(flow);
    }
  }

 private:
  void open(Lane lane, Category category, const char* name, std::size_t num_bytes, int track);
  void close() noexcept;
  void append() noexcept;
  void leave() const noexcept;
  void discard() noexcept;
  void add_flow_point(std::uint64_t flow);

  // All but recording_ are set by open(), so that a span costs no stores while nothing records.
  std::uint32_t recording_;
  int rank_;
  const char* name_;
  std::int64_t begin_ns_;
  std::size_t num_bytes_;
  std::int64_t sequence_;
  std::uint64_t id_;
  std::int64_t cpu_begin_ns_;
  Lane lane_;
  Category category_;
};

// Work that no timeline shall show: what checks a run, and is no part of it.

// While one of these lives, the spans and flows of the calling thread are not recorded.
class MutedScope {
 public:
  MutedScope();
  ~MutedScope();
  MutedScope(const MutedScope&) = delete;
  MutedScope& operator=(const MutedScope&) = delete;

 private:
  bool was_muted_;
};

// Whether the calling thread has one.
bool is_muted();

}  // namespace lockstep::trace
