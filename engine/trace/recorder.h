// Turning recording on and off, and getting the spans out.
//
//   trace::start();
//   ... training steps ...
//   trace::stop();
//   const trace::Recording recording = trace::collect();
//
// Threads: every function may be called from any thread at any time, also while others record.
// A thread writes its spans into a buffer of its own, which outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::trace {

struct RecordOptions {
  // Spans and samples kept, over all threads (one takes at most 72 bytes); threads take them in
  // chunks of kChunkEntries. What does not fit is counted as dropped: the first ones stay, so that
  // the recording has a clean beginning.
  std::size_t max_entries = std::size_t{5} << 18;
  // How many times slower than shown everything happens: collect() divides the time since the
  // recording began by it.
  double times_slower = 1;
  // Records one training step in so many, as thread_context() counts them, so that long runs fit:
  // the steps between leave no spans or samples.
  std::uint64_t step_stride = 1;
};

inline constexpr std::size_t kChunkEntries = 1024;

struct Recording {
  std::vector<Span> spans;      // by begin, then longest first: a parent stands before its children
  std::vector<Sample> memory;   // by time: in use on the rank's device
  std::size_t num_dropped = 0;  // spans and samples that did not fit
};

// Begins a new recording and forgets the one before. A span that is open now belongs to neither.
void start(const RecordOptions& options = {});

// No span begins to be recorded after this. One that is open is recorded when it ends.
void stop();

// A copy of what the current or last recording holds so far.
Recording collect();

// Adds a span that a device timed (by its events, say) and not this thread; it gets the thread
// kDeviceThread. Does nothing while nothing records.
// REQUIRES: its times are on now_ns()'s clock.
void record(Span span);

// Adds a sample of the memory in use. Does nothing while nothing records.
void record(const Sample& memory);

}  // namespace lockstep::trace
