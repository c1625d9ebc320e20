#include "engine/trace/kineto_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/trace/json_events.h"
#include "engine/trace/timeline.h"

namespace lockstep::trace {

namespace {

// The process that stands for the rank's host side; its device side is process `rank`.
constexpr std::int64_t kHostProcessBase = 10000;

struct Stream {
  Lane lane;
  std::size_t number;
};
// Apart by more than one, for lanes that two threads use at once.
constexpr Stream kStreams[] = {{Lane::compute, 7}, {Lane::copy, 15}, {Lane::comm, 20}};

// The spans of one lane that no other span of that lane and thread lies in.
std::vector<Span> innermost_spans(const std::vector<Span>& spans, Lane lane) {
  std::map<std::uint32_t, std::vector<Span>> by_thread;
  for (const Span& span : spans) {
    if (span.lane == lane && span.category != Category::step) {
      by_thread[span.thread].push_back(span);
    }
  }
  std::vector<Span> innermost;
  for (auto& [thread, list] : by_thread) {
    std::stable_sort(list.begin(), list.end(), [](const Span& a, const Span& b) {
      return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
    });
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i + 1 == list.size() || list[i].end_ns <= list[i + 1].begin_ns) {
        innermost.push_back(list[i]);
      }
    }
  }
  return innermost;
}

class KinetoWriter {
 public:
  KinetoWriter(std::ostream& out, int rank, std::int64_t origin_ns)
      : events_(out), rank_(rank), origin_ns_(origin_ns) {}

  void add_host_side(const std::vector<Span>& spans) {
    const std::int64_t process = kHostProcessBase + rank_;
    name_process(process, fmt::format("rank {} (host)", rank_));
    std::set<std::uint32_t> named_threads;
    for (const Span& span : spans) {
      if (span.thread == kDeviceThread) {
        continue;
      }
      const std::size_t thread = span.thread + std::size_t{1};
      if (named_threads.insert(span.thread).second) {
        name_thread(process, thread, fmt::format("thread {}", span.thread));
      }
      const std::size_t correlation = ++last_correlation_;
      correlation_of_[span.id] = correlation;
      add_span(span, span.category == Category::op ? "cpu_op" : "user_annotation",
               span.category == Category::step ? fmt::format("ProfilerStep#{}", span.sequence)
                                               : std::string(span.name),
               process, thread, fmt::format(R"("External id":{0},"correlation":{0})", correlation));
    }
  }

  void add_device_side(const std::vector<Span>& spans) {
    name_process(rank_, fmt::format("rank {} (device)", rank_));
    for (const Stream stream : kStreams) {
      std::size_t number = stream.number;
      for (const std::vector<Span>& row : disjoint_rows(innermost_spans(spans, stream.lane))) {
        name_thread(rank_, number, fmt::format("stream {} ({})", number, to_string(stream.lane)));
        for (const Span& span : row) {
          add_device_span(span, number);
        }
        ++number;
      }
    }
  }

 private:
  void add_device_span(const Span& span, std::size_t stream) {
    std::string args = fmt::format(R"("device":{},"context":1,"stream":{})", rank_, stream);
    const auto found = correlation_of_.find(span.id);
    if (found != correlation_of_.end()) {
      args += fmt::format(R"(,"External id":{0},"correlation":{0})", found->second);
    }
    const bool is_copy = span.lane == Lane::copy;
    const std::string name = is_copy                   ? fmt::format("Memcpy DtoD ({})", span.name)
                             : span.lane == Lane::comm ? fmt::format("ncclKernel_{}", span.name)
                                                       : std::string(span.name);
    add_span(span, is_copy ? "gpu_memcpy" : "kernel", name, rank_, stream, args);
  }

  void add_span(const Span& span, std::string_view category, std::string_view name,
                std::int64_t process, std::size_t thread, std::string args) {
    if (span.num_bytes != 0) {
      args += fmt::format(R"(,"bytes":{})", span.num_bytes);
    }
    events_.add(fmt::format(
        R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        category, json_string(name), process, thread, json_microseconds(span.begin_ns - origin_ns_),
        json_microseconds(span.end_ns - span.begin_ns), args));
  }

  void name_process(std::int64_t process, const std::string& name) {
    events_.add(metadata_event("process_name", process, 0, "name", json_string(name)));
  }
  void name_thread(std::int64_t process, std::size_t thread, const std::string& name) {
    events_.add(metadata_event("thread_name", process, thread, "name", json_string(name)));
  }

  EventList events_;
  const int rank_;
  const std::int64_t origin_ns_;
  std::size_t last_correlation_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> correlation_of_;  // by Span::id
};

}  // namespace

void write_kineto_trace(std::ostream& out, const Recording& recording, int rank,
                        const KinetoOptions& options) {
  const std::int64_t origin_ns = options.origin_ns.value_or(earliest_ns(recording.spans));
  out << "{\n\"schemaVersion\": 1,\n";
  out << fmt::format("\"deviceProperties\": [{{\"id\": {}, \"name\": {}}}],\n", rank,
                     json_string(options.device_name));
  out << fmt::format(
      "\"distributedInfo\": {{\"backend\": {}, \"rank\": {}, \"world_size\": {}}},\n",
      json_string(options.backend), rank, options.world_size);
  out << "\"displayTimeUnit\": \"ms\",\n";
  out << fmt::format("\"baseTimeNanoseconds\": {},\n", origin_ns);
  out << "\"traceEvents\": [";
  const Recording part = of_rank(recording, rank);
  KinetoWriter writer(out, rank, origin_ns);
  writer.add_host_side(part.spans);
  writer.add_device_side(part.spans);
  out << "\n]}\n";
}

std::vector<std::filesystem::path> save_kineto_traces(const std::filesystem::path& path,
                                                      const Recording& recording,
                                                      const KinetoOptions& options) {
  std::set<int> ranks;
  for (const Span& span : recording.spans) {
    ranks.insert(span.rank);
  }
  std::vector<std::filesystem::path> files;
  for (const int rank : ranks) {
    std::filesystem::path file = path;
    file.replace_extension(fmt::format(".rank{}{}", rank, path.extension().string()));
    save_file(file, [&](std::ostream& out) { write_kineto_trace(out, recording, rank, options); });
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace lockstep::trace
