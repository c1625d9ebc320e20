#include "engine/trace/chrome_trace.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/core/files.h"

namespace lockstep::trace {
namespace {

// --- the row of a span ---

// The spans of a rank that share rows, in the order in which they are drawn.
struct Group {
  int rank;
  int position;
  std::string name;

  bool operator<(const Group& other) const {
    return std::tie(rank, position) < std::tie(other.rank, other.position);
  }
};

// A GPU's rows come below all rows of the host that launches its work.
constexpr int kDevicePosition = 10;

Group group_of(const Span& span) {
  Group group{span.rank, 0, "steps"};
  if (span.category != Category::step) {
    constexpr std::array<int, 4> kPositions{3, 7, 5, 1};  // compute, comm, copy, host
    const bool is_op = span.category == Category::op;
    group.position = kPositions[static_cast<std::size_t>(span.lane)] + (is_op ? 1 : 0);
    group.name = std::string(to_string(span.lane)) + (is_op ? " ops" : "");
  }
  if (span.thread == kDeviceThread) {
    group.position += kDevicePosition;
    group.name = "GPU " + group.name;
  }
  return group;
}

using Row = std::vector<Span>;

// Sorted by begin, the longer first, each span goes into the first row in which it overlaps
// nothing, so that nested spans are below the spans around them.
std::vector<Row> disjoint_rows(std::vector<Span>& spans) {
  std::ranges::stable_sort(spans, {},
                           [](const Span& s) { return std::pair(s.begin_ns, -s.end_ns); });
  std::vector<Row> rows;
  for (const Span& span : spans) {
    auto free = std::ranges::find_if(
        rows, [&](const Row& row) { return row.back().end_ns <= span.begin_ns; });
    if (free == rows.end()) free = rows.emplace(rows.end());
    free->push_back(span);
  }
  return rows;
}

// --- JSON ---

// Text as a JSON string, with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Nanoseconds as a JSON number of microseconds, exactly: 1234567 -> 1234.567.
std::string json_microseconds(std::int64_t nanoseconds) {
  const std::int64_t size = std::abs(nanoseconds);
  return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", size / 1000, size % 1000);
}

// Writes the events of one file, one per line. Threads are numbered from 1 over all processes,
// because some viewers do not know that a thread's number only counts within its process.
class EventWriter {
 public:
  EventWriter(std::ostream& out, std::int64_t origin_ns) : out_(out), origin_ns_(origin_ns) {}

  // A "process_name", "thread_name", ... record; value is JSON.
  void name(std::string_view what, int rank, std::size_t thread, std::string_view key,
            std::string_view value) {
    add(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"{}":{}}}}})", what, rank,
                    thread, key, value));
  }

  void sample(const Sample& sample, std::size_t thread) {
    add(fmt::format(R"({{"ph":"C","name":"{}","pid":{},"tid":{},"ts":{},"args":{{"value":{}}}}})",
                    "memory (bytes)", sample.rank, thread,
                    json_microseconds(sample.time_ns - origin_ns_), sample.num_bytes));
  }

  void span(const Span& span, std::size_t thread) {
    std::string args;
    const auto add_arg = [&](std::string_view key, auto value) {
      args += fmt::format(R"({}"{}":{})", args.empty() ? "" : ",", key, value);
    };
    if (span.num_bytes != 0) add_arg("bytes", span.num_bytes);
    if (span.sequence != kNoSequence) add_arg("sequence", span.sequence);
    // Rows are lanes, so without the thread a reader could not tell what kept it from its other
    // work.
    if (span.category != Category::op && span.thread != kDeviceThread) {
      add_arg("thread", span.thread);
    }
    add(fmt::format(
        R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        to_string(span.category), json_string(span.name), span.rank, thread,
        json_microseconds(span.begin_ns - origin_ns_),
        json_microseconds(span.end_ns - span.begin_ns), args));
  }

 private:
  void add(std::string_view event) { out_ << std::exchange(separator_, ",\n") << event; }

  std::ostream& out_;
  std::int64_t origin_ns_;
  const char* separator_ = "\n";
};

}  // namespace

void write_chrome_trace(std::ostream& out, const Recording& recording,
                        const ChromeTraceOptions& options) {
  std::map<Group, std::vector<Span>> groups;
  for (const Span& span : recording.spans) groups[group_of(span)].push_back(span);
  // With "ms", chrome://tracing rounds the times of spans this short.
  out << "{\"displayTimeUnit\":\"ns\",\n";
  if (recording.num_dropped != 0) out << "\"droppedEvents\":" << recording.num_dropped << ",\n";
  out << "\"traceEvents\":[";
  const auto first = std::ranges::min_element(recording.spans, {}, &Span::begin_ns);
  EventWriter events(out, first == recording.spans.end() ? 0 : first->begin_ns);
  std::set<int> named;
  std::size_t thread = 0;
  for (auto& [group, spans] : groups) {
    const int rank = group.rank;
    std::size_t level = 0;
    for (const Row& row : disjoint_rows(spans)) {
      ++thread;
      ++level;
      if (named.insert(rank).second) {
        const auto found = options.process_names.find(rank);
        const std::string name =
            found == options.process_names.end() ? fmt::format("rank {}", rank) : found->second;
        events.name("process_name", rank, thread, "name", json_string(name));
        events.name("process_sort_index", rank, thread, "sort_index", fmt::to_string(rank));
        for (const Sample& sample : recording.memory) {
          if (sample.rank == rank) events.sample(sample, thread);
        }
      }
      const std::string name =
          level == 1 ? group.name : fmt::format("{}, level {}", group.name, level);
      events.name("thread_name", rank, thread, "name", json_string(name));
      events.name("thread_sort_index", rank, thread, "sort_index", fmt::to_string(thread));
      for (const Span& span : row) events.span(span, thread);
    }
  }
  out << "\n]}\n";
}

void save_chrome_trace(const std::filesystem::path& path, const Recording& recording,
                       const ChromeTraceOptions& options) {
  std::ostringstream out;
  write_chrome_trace(out, recording, options);
  AtomicFile file(path, "trace");
  file.write(out.view());
  file.commit();
}

}  // namespace lockstep::trace
