// Pieces that the trace formats share: both are JSON objects with a list "traceEvents".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

// The counters of a rank as "C" events of a process, for as long as it has any: "memory (bytes)",
// and "bytes in flight" (bytes_in_flight.h). thread: one of the process, which viewers want.
void add_counters(EventList& events, const Recording& recording, int rank, std::size_t thread,
                  std::int64_t origin_ns);

// The clock of a rank beside rank 0's, as the members of a JSON object.
std::string clock_members(const Recording& recording, int rank);

// Writes a whole file by way of write(out), atomically (core/atomic_file.h). Throws Error{Io} when
// it cannot be written.
void save_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

}  // namespace lockstep::trace
