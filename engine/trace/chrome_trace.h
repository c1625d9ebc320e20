// A recording as Chrome's Trace Event JSON, which ui.perfetto.dev and chrome://tracing open.
//
//   process   a rank (or a device of DataParallel), named "rank 0" unless told otherwise
//   thread    a row of timeline.h: spans of one thread never overlap, so nested ops have a row of
//             their own below their phase
//   "X"       a span; ts and dur in microseconds with three decimals; args: bytes and sequence,
//             where there are any
//   "C"       a counter of a process: "memory (bytes)" in use, "bytes in flight"
//   "s" "t" "f"  a flow: its first point, those between, its last. Each lies inside the span that
//             it passes through ("bp":"e"). Flows are numbered from 1 by their first time. A flow
//             with fewer than two points in the recording is left out
// displayTimeUnit is "ns": with "ms", chrome://tracing drops most flows of spans this short.
// The top level also has "droppedEvents" when the recording dropped any, and, under "otherData",
// how each rank's clock was put onto rank 0's (clock_offset.h).
//
// Source: "Trace Event Format", Google, 2016.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <string>

#include "engine/trace/recorder.h"

namespace lockstep::trace {

struct ChromeTraceOptions {
  std::map<int, std::string> process_names = {};  // by Span::rank
  // What ts counts from; the earliest span when empty. Ranks that are processes of one host pass
  // the same value, so that their files can be put together.
  std::optional<std::int64_t> origin_ns = {};
};

// REQUIRES: each flow point's time lies inside its span.
void write_chrome_trace(std::ostream& out, const Recording& recording,
                        const ChromeTraceOptions& options = {});

// The same into a file. Throws Error{Io} when it cannot be written.
void save_chrome_trace(const std::filesystem::path& path, const Recording& recording,
                       const ChromeTraceOptions& options = {});

}  // namespace lockstep::trace
