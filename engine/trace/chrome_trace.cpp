#include "engine/trace/chrome_trace.h"

#include <algorithm>
#include <limits>
#include <set>
#include <streambuf>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/core/files.h"
#include "engine/trace/timeline.h"

namespace lockstep::trace {

namespace {

// The way of a stream into a file.
class FileBuffer : public std::streambuf {
 public:
  explicit FileBuffer(AtomicFile& file) : file_(file) { setp(bytes_.data(), end()); }

 protected:
  int_type overflow(int_type c) override {
    sync();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

  int sync() override {
    file_.write(std::string_view(pbase(), static_cast<std::size_t>(pptr() - pbase())));
    setp(bytes_.data(), end());
    return 0;
  }

 private:
  char* end() { return bytes_.data() + bytes_.size(); }

  AtomicFile& file_;
  std::vector<char> bytes_ = std::vector<char>(std::size_t{1} << 16);
};

}  // namespace

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_microseconds(std::int64_t nanoseconds) {
  const std::int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", size / 1000, size % 1000);
}

std::int64_t earliest_ns(const std::vector<Span>& spans) {
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  for (const Span& span : spans) {
    earliest = std::min(earliest, span.begin_ns);
  }
  return spans.empty() ? 0 : earliest;
}

std::string metadata_event(std::string_view name, std::int64_t process, std::size_t thread,
                           std::string_view key, std::string_view value) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"{}":{}}}}})", name,
                     process, thread, key, value);
}

void add_counters(EventList& events, const Recording& recording, int rank, std::size_t thread,
                  std::int64_t origin_ns) {
  const auto add = [&](std::string_view name, const Sample& sample) {
    events.add(fmt::format(
        R"({{"ph":"C","name":"{}","pid":{},"tid":{},"ts":{},"args":{{"value":{}}}}})", name, rank,
        thread, json_microseconds(sample.time_ns - origin_ns), sample.num_bytes));
  };
  for (const Sample& sample : recording.memory) {
    if (sample.rank == rank) add("memory (bytes)", sample);
  }
}

void save_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write) {
  AtomicFile file(path, "trace");
  FileBuffer buffer(file);
  std::ostream out(&buffer);
  out.exceptions(std::ios::badbit);  // what the file throws comes through
  write(out);
  out.flush();
  file.commit();
}

namespace {

// Threads are numbered from 1 over all processes: viewers need not know that a thread's number
// counts within its process only.
struct Place {
  int process = 0;
  std::size_t thread = 0;
};

std::string span_event(const Span& span, Place place, std::int64_t origin_ns) {
  std::string args;
  if (span.num_bytes != 0) {
    args += fmt::format(R"("bytes":{})", span.num_bytes);
  }
  if (span.sequence != kNoSequence) {
    args += fmt::format(R"({}"sequence":{})", args.empty() ? "" : ",", span.sequence);
  }
  // Rows are lanes, so who reads the file could not tell what kept a thread from its other work.
  if (span.category != Category::op && span.thread != kDeviceThread) {
    args += fmt::format(R"({}"thread":{})", args.empty() ? "" : ",", span.thread);
  }
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
      to_string(span.category), json_string(span.name), place.process, place.thread,
      json_microseconds(span.begin_ns - origin_ns), json_microseconds(span.end_ns - span.begin_ns),
      args);
}

using Places = std::unordered_map<std::uint64_t, Place>;  // by Span::id

void add_flows(EventList& events, const Recording& recording, const Places& places,
               std::int64_t origin_ns) {
  std::vector<FlowPoint> points;
  for (const FlowPoint& point : recording.flows) {
    if (places.count(point.span) != 0) {
      points.push_back(point);
    }
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const FlowPoint& a, const FlowPoint& b) { return a.time_ns < b.time_ns; });
  std::vector<std::vector<FlowPoint>> flows;  // by their first time
  std::unordered_map<std::uint64_t, std::size_t> index_of;
  for (const FlowPoint& point : points) {
    const auto [found, is_new] = index_of.try_emplace(point.flow, flows.size());
    if (is_new) {
      flows.emplace_back();
    }
    flows[found->second].push_back(point);
  }
  std::size_t id = 0;
  for (const std::vector<FlowPoint>& flow : flows) {
    if (flow.size() < 2) {
      continue;
    }
    ++id;
    for (std::size_t i = 0; i < flow.size(); ++i) {
      const char phase = i == 0 ? 's' : i + 1 == flow.size() ? 'f' : 't';
      const Place place = places.at(flow[i].span);
      events.add(fmt::format(
          R"({{"ph":"{}","cat":"flow","name":"flow","id":{},"pid":{},"tid":{},"ts":{},"bp":"e"}})",
          phase, id, place.process, place.thread, json_microseconds(flow[i].time_ns - origin_ns)));
    }
  }
}

void name_process(EventList& events, int rank, std::size_t thread,
                  const ChromeTraceOptions& options) {
  const auto named = options.process_names.find(rank);
  const std::string name =
      named == options.process_names.end() ? fmt::format("rank {}", rank) : named->second;
  events.add(metadata_event("process_name", rank, thread, "name", json_string(name)));
  events.add(
      metadata_event("process_sort_index", rank, thread, "sort_index", fmt::to_string(rank)));
}

}  // namespace

void write_chrome_trace(std::ostream& out, const Recording& recording,
                        const ChromeTraceOptions& options) {
  const std::int64_t origin_ns = options.origin_ns.value_or(earliest_ns(recording.spans));
  out << "{\"displayTimeUnit\":\"ns\",\n";
  if (recording.num_dropped != 0) {
    out << "\"droppedEvents\":" << recording.num_dropped << ",\n";
  }
  const std::vector<TimelineRow> rows = timeline_of(recording.spans);
  out << "\"traceEvents\":[";
  EventList events(out);
  Places places;
  std::set<int> named_processes;
  std::size_t thread = 0;
  for (const TimelineRow& row : rows) {
    ++thread;
    if (named_processes.insert(row.rank).second) {
      name_process(events, row.rank, thread, options);
      add_counters(events, recording, row.rank, thread, origin_ns);
    }
    events.add(metadata_event("thread_name", row.rank, thread, "name", json_string(row.name)));
    events.add(metadata_event("thread_sort_index", row.rank, thread, "sort_index",
                              fmt::to_string(thread)));
    for (const Span& span : row.spans) {
      const Place place{row.rank, thread};
      places[span.id] = place;
      events.add(span_event(span, place, origin_ns));
    }
  }
  add_flows(events, recording, places, origin_ns);
  out << "\n]}\n";
}

void save_chrome_trace(const std::filesystem::path& path, const Recording& recording,
                       const ChromeTraceOptions& options) {
  save_file(path, [&](std::ostream& out) { write_chrome_trace(out, recording, options); });
}

}  // namespace lockstep::trace
