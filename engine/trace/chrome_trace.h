// Writes a recording as Chrome's Trace Event JSON, which ui.perfetto.dev and chrome://tracing open.
//
//   process   a rank (or a device of DataParallel), named "rank 0" unless told otherwise
//   thread    a row of spans that do not overlap. A lane has a row for its phases and one for its
//             ops ("compute", "compute ops"); steps have their own row, and so has what a GPU timed
//             itself ("GPU compute"). A span that would overlap an earlier one of its row, because
//             it is nested in it or because two threads used the lane at once, goes one row further
//             down ("compute ops, level 2")
//   "X"       a span; ts and dur in microseconds with three decimals; args: bytes, sequence and
//             thread, if known. ts counts from the earliest span
//   "C"       a counter of a process: "memory (bytes)" in use
// The top level also has "droppedEvents" if the recording dropped any.
//
// Source: "Trace Event Format", Google, 2016.
#pragma once

#include <filesystem>
#include <map>
#include <ostream>
#include <string>

#include "engine/trace/recorder.h"

namespace lockstep::trace {

struct ChromeTraceOptions {
  std::map<int, std::string> process_names = {};  // keyed by Span::rank
};

void write_chrome_trace(std::ostream& out, const Recording& recording,
                        const ChromeTraceOptions& options = {});

// The same into a file. Throws Error{Io} if it cannot be written.
void save_chrome_trace(const std::filesystem::path& path, const Recording& recording,
                       const ChromeTraceOptions& options = {});

}  // namespace lockstep::trace
