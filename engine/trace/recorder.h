// Turns recording on and off, and returns the spans.
//
//   trace::start();
//   ... training steps ...
//   trace::stop();
//   const trace::Recording recording = trace::collect();
//
// Threads: any thread may call every function at any time, also while others record. A thread
// writes its spans into a buffer of its own, which outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::trace {

struct RecordOptions {
  // The most spans and samples to keep, over all threads (one takes at most 72 bytes); threads take
  // them in blocks of kBlockEntries. Later ones are counted as dropped, so that the recording has a
  // clean beginning.
  std::size_t max_entries = std::size_t{5} << 18;
  // How many times slower everything happens than is shown: collect() divides the time since the
  // recording began by it.
  double times_slower = 1;
  // Records only every step_stride-th training step, as thread_context() counts them, so that long
  // runs fit; the steps between leave no spans or samples.
  std::uint64_t step_stride = 1;
};

inline constexpr std::size_t kBlockEntries = 1024;

struct Recording {
  std::vector<Span> spans;      // sorted by begin, longest first: parents come before children
  std::vector<Sample> memory;   // sorted by time: bytes in use on the rank's device
  std::size_t num_dropped = 0;  // spans and samples that did not fit
  // A time t of the steady clock is shown as began_ns + (t - began_ns) / times_slower.
  std::int64_t began_ns = 0;
  double times_slower = 1;
};

// Begins a new recording and forgets the last one. A span that is open now belongs to neither.
void start(const RecordOptions& options = {});

// After this no new span is recorded. A span that is open is recorded when it ends.
void stop();

// A copy of the current or last recording so far.
Recording collect();

}  // namespace lockstep::trace
