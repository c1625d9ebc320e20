// Writes a recording as Chrome's Trace Event JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/recorder.h"

namespace lockstep::trace {

// text as a JSON string, with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

// Nanoseconds as a JSON number of microseconds, exactly: 1234567 -> 1234.567.
std::string json_microseconds(std::int64_t nanoseconds);

// The earliest begin; 0 when there are no spans.
std::int64_t earliest_ns(const std::vector<Span>& spans);

// Writes JSON objects one per line, with commas between them.
class EventList {
 public:
  explicit EventList(std::ostream& out) : out_(out) {}
  // REQUIRES: event is a complete JSON object.
  void add(std::string_view event) {
    out_ << (empty_ ? "\n" : ",\n") << event;
    empty_ = false;
  }

 private:
  std::ostream& out_;
  bool empty_ = true;
};

// A process_name, thread_name, ... record:
// {"name":NAME,"ph":"M","pid":..,"tid":..,"args":{KEY:VALUE}} with value already JSON.
std::string metadata_event(std::string_view name, std::int64_t process, std::size_t thread,
                           std::string_view key, std::string_view value);

// The counters of a rank as "C" events of a process, for as long as it has any: "memory (bytes)".
// thread: one of the process, which viewers want.
void add_counters(EventList& events, const Recording& recording, int rank, std::size_t thread,
                  std::int64_t origin_ns);

// Writes a whole file by way of write(out), atomically (core/files.h). Throws Error{Io} when
// it cannot be written.
void save_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

// A recording as Chrome's Trace Event JSON, which ui.perfetto.dev and chrome://tracing open.
//
//   process   a rank (or a device of DataParallel), named "rank 0" unless told otherwise
//   thread    a row of timeline.h: spans of one thread never overlap, so nested ops have a row of
//             their own below their phase
//   "X"       a span; ts and dur in microseconds with three decimals; args: bytes and sequence,
//             where there are any
//   "C"       a counter of a process: "memory (bytes)" in use
//   "s" "t" "f"  a flow: its first point, those between, its last. Each lies inside the span that
//             it passes through ("bp":"e"). Flows are numbered from 1 by their first time. A flow
//             with fewer than two points in the recording is left out
// displayTimeUnit is "ns": with "ms", chrome://tracing drops most flows of spans this short.
// The top level also has "droppedEvents" when the recording dropped any.
//
// Source: "Trace Event Format", Google, 2016.
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
