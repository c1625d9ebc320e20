#include "engine/trace/kineto_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/trace/breakdown.h"
#include "engine/trace/chrome_trace.h"
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

IntervalSet times_of_steps(const std::vector<Span>& spans, bool by_device) {
  std::vector<Interval> steps;
  for (const Span& span : spans) {
    const bool is_wanted = (span.thread == kDeviceThread) == by_device;
    if (is_wanted && span.category == Category::step) steps.push_back({span.begin_ns, span.end_ns});
  }
  return union_of(std::move(steps));
}

// What of the pieces lies inside the steps; all of it where there are no steps.
std::vector<Span> parts_inside(const std::vector<Span>& pieces, const IntervalSet& steps) {
  if (steps.empty()) return pieces;
  std::vector<Span> parts;
  for (const Span& piece : pieces) {
    for (const Interval part : part_inside(steps, {piece.begin_ns, piece.end_ns})) {
      parts.push_back(piece);
      parts.back().begin_ns = part.begin_ns;
      parts.back().end_ns = part.end_ns;
    }
  }
  return parts;
}

// Whether the piece is something that its lane does, and not that it waits.
bool is_work(const Span& piece) {
  return piece.lane == Lane::compute ? is_computing(piece) : piece.lane != Lane::host;
}

class KinetoWriter {
 public:
  KinetoWriter(std::ostream& out, const std::vector<Span>& spans, int rank, std::int64_t origin_ns)
      : events_(out),
        spans_(spans),
        rank_(rank),
        origin_ns_(origin_ns),
        host_steps_(times_of_steps(spans, false)) {}

  void add_host_side() {
    const std::int64_t process = kHostProcessBase + rank_;
    name_process(process, fmt::format("rank {} (host)", rank_));
    std::set<std::uint32_t> named_threads;
    for (const Span& span : spans_) {
      if (span.thread == kDeviceThread) {
        continue;
      }
      const std::size_t thread = span.thread + std::size_t{1};
      if (named_threads.insert(span.thread).second) {
        name_thread(process, thread, fmt::format("thread {}", span.thread));
      }
      const std::size_t correlation = ++last_correlation_;
      correlation_of_[span.id] = correlation;
      if (span.category == Category::step) correlation_of_step_[span.sequence] = correlation;
      const bool is_collective = is_collective_of_a_step(span);
      std::string args = fmt::format(R"("External id":{0},"correlation":{0})", correlation);
      if (span.num_bytes != 0) args += fmt::format(R"(,"bytes":{})", span.num_bytes);
      if (is_collective) {
        args +=
            fmt::format(R"(,"Input Dims":[[{}]],"Input type":["unsigned char"])", span.num_bytes);
      }
      add_span(span, span.category == Category::op ? "cpu_op" : "user_annotation",
               span.category == Category::step ? fmt::format("ProfilerStep#{}", span.sequence)
               : is_collective                 ? fmt::format("nccl:{}", span.name)
                                               : std::string(span.name),
               process, thread, args);
    }
  }

  void add_device_side() {
    for (const Span& span : spans_) {
      if (span.thread == kDeviceThread && span.category == Category::step) {
        device_steps_[span.begin_ns] = span.sequence;
      }
    }
    name_process(rank_, fmt::format("rank {} (device)", rank_));
    const bool by_device = has_device_spans(spans_, rank_);
    const IntervalSet steps = times_of_steps(spans_, by_device);
    std::vector<Span> pieces = parts_inside(pieces_of_rank(spans_, rank_), steps);
    std::erase_if(pieces, [](const Span& piece) { return !is_work(piece); });
    for (const Stream stream : kStreams) {
      std::vector<Span> of_lane;
      std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(of_lane),
                   [&](const Span& piece) { return piece.lane == stream.lane; });
      std::size_t number = stream.number;
      for (const std::vector<Span>& row : disjoint_rows(std::move(of_lane))) {
        name_thread(rank_, number, fmt::format("stream {} ({})", number, to_string(stream.lane)));
        for (const Span& piece : row) {
          add_device_span(piece, number);
        }
        ++number;
      }
    }
  }

  // part: of the rank.
  void add_counters_of(const Recording& part) {
    add_counters(events_, part, rank_, kStreams[0].number, origin_ns_);
  }

 private:
  bool is_collective_of_a_step(const Span& span) const {
    if (span.lane != Lane::comm || span.category != Category::communication) return false;
    const IntervalSet inside = part_inside(host_steps_, {span.begin_ns, span.end_ns});
    return host_steps_.empty() || total_ns(inside) == span.end_ns - span.begin_ns;
  }

  // Of the span on the host that the piece comes from, else of the step that the GPU was at.
  std::optional<std::size_t> correlation_of(const Span& piece) const {
    const auto found = correlation_of_.find(piece.id);
    if (found != correlation_of_.end()) return found->second;
    const auto next = device_steps_.upper_bound(piece.begin_ns);
    if (next == device_steps_.begin()) return std::nullopt;
    const auto on_host = correlation_of_step_.find(std::prev(next)->second);
    if (on_host == correlation_of_step_.end()) return std::nullopt;
    return on_host->second;
  }

  void add_device_span(const Span& piece, std::size_t stream) {
    std::string args = fmt::format(R"("device":{},"context":1,"stream":{})", rank_, stream);
    if (const std::optional<std::size_t> correlation = correlation_of(piece)) {
      args += fmt::format(R"(,"External id":{0},"correlation":{0})", *correlation);
    }
    if (piece.lane != Lane::compute && piece.num_bytes != 0) {
      args += fmt::format(R"(,"bytes":{})", piece.num_bytes);
    }
    const bool is_copy = piece.lane == Lane::copy;
    const std::string name = is_copy ? fmt::format("Memcpy DtoD ({})", piece.name)
                             : piece.lane == Lane::comm ? fmt::format("ncclKernel_{}", piece.name)
                                                        : std::string(piece.name);
    add_span(piece, is_copy ? "gpu_memcpy" : "kernel", name, rank_, stream, args);
  }

  void add_span(const Span& span, std::string_view category, std::string_view name,
                std::int64_t process, std::size_t thread, std::string_view args) {
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
  const std::vector<Span>& spans_;  // of the rank, by begin
  const int rank_;
  const std::int64_t origin_ns_;
  const IntervalSet host_steps_;
  std::size_t last_correlation_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> correlation_of_;      // by Span::id
  std::unordered_map<std::int64_t, std::size_t> correlation_of_step_;  // by sequence
  std::map<std::int64_t, std::int64_t> device_steps_;                  // from begin to sequence
};

// Of all ranks' devices: TensorBoard looks for the properties of device i in entry i.
std::string device_properties(int rank, const KinetoOptions& options) {
  const std::size_t num_devices =
      std::max(options.device_names.size(), static_cast<std::size_t>(rank) + 1);
  std::string list;
  for (std::size_t i = 0; i < num_devices; ++i) {
    const std::string name =
        i < options.device_names.size() ? options.device_names[i] : "logical device";
    list += fmt::format(R"({}{{"id": {}, "name": {}}})", i == 0 ? "" : ", ", i, json_string(name));
  }
  return list;
}

}  // namespace

std::filesystem::path kineto_path(const std::filesystem::path& path, int rank) {
  std::string name = path.filename().string();
  for (const std::string_view ending : {".json", ".trace", ".pt"}) {
    if (name.size() > ending.size() && name.ends_with(ending))
      name.erase(name.size() - ending.size());
  }
  return path.parent_path() / fmt::format("{}.rank_{}.pt.trace.json", name, rank);
}

void write_kineto_trace(std::ostream& out, const Recording& recording, int rank,
                        const KinetoOptions& options) {
  const std::int64_t origin_ns = options.origin_ns.value_or(earliest_ns(recording.spans));
  out << "{\n\"schemaVersion\": 1,\n";
  out << fmt::format("\"deviceProperties\": [{}],\n", device_properties(rank, options));
  out << fmt::format(
      "\"distributedInfo\": {{\"backend\": {}, \"rank\": {}, \"world_size\": {}}},\n",
      json_string(options.backend), rank, options.world_size);
  out << fmt::format("\"clock\": {{{}}},\n", clock_members(recording, rank));
  out << "\"displayTimeUnit\": \"ns\",\n";
  out << fmt::format("\"baseTimeNanoseconds\": {},\n", origin_ns);
  out << "\"traceEvents\": [";
  const Recording part = of_rank(recording, rank);
  KinetoWriter writer(out, part.spans, rank, origin_ns);
  writer.add_host_side();
  writer.add_device_side();
  writer.add_counters_of(part);
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
    const std::filesystem::path file = kineto_path(path, rank);
    save_file(file, [&](std::ostream& out) { write_kineto_trace(out, recording, rank, options); });
    files.push_back(file);
  }
  return files;
}

}  // namespace lockstep::trace
