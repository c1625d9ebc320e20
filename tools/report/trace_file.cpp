#include "tools/report/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/trace/chrome_trace.h"

namespace lockstep::tools {
namespace {

trace::ChromeTraceOptions chrome_options(const DevicePlacement& placement) {
  trace::ChromeTraceOptions options;
  const std::vector<int> tracks = tracks_of(placement);
  for (std::size_t i = 0; i < placement.devices.size(); ++i) {
    const std::string device = lockstep::to_string(placement.devices[i]);
    options.process_names[tracks[i]] =
        placement.mode == Mode::pipeline ? fmt::format("stage {} on {}", i, device)
        : has_ranks(placement.mode)      ? fmt::format("rank {} on {}", i, device)
                                         : fmt::format("device {}", device);
  }
  return options;
}

struct Header {
  std::uint64_t num_name_bytes = 0;
  std::uint64_t num_spans = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_dropped = 0;
};

// A span whose name is an offset into the zero-terminated names.
struct PackedSpan {
  trace::Span span;
  std::uint64_t name = 0;
};
static_assert(std::is_trivially_copyable_v<PackedSpan>);
static_assert(std::is_trivially_copyable_v<trace::Sample>);

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::string_view& bytes) {
  require(bytes.size() >= sizeof(T), ErrorCode::Io, "trace", "the recording of a rank is cut off");
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

}  // namespace

void write_trace(const TrainingFlags& flags, const DevicePlacement& placement,
                 const trace::Recording& recording) {
  if (recording.num_dropped > 0) {
    log_warning("the trace keeps the first {} spans; {} later ones did not fit",
                recording.spans.size(), recording.num_dropped);
  }
  trace::save_chrome_trace(flags.trace_path, recording, chrome_options(placement));
}

std::string describe_trace(const TrainingFlags& flags) {
  return fmt::format("trace: {}; open it in https://ui.perfetto.dev\n", flags.trace_path);
}

std::string pack_recording(const trace::Recording& recording) {
  std::string names;
  std::map<std::string_view, std::uint64_t> offsets;
  std::string body;
  for (const trace::Span& span : recording.spans) {
    const auto [found, is_new] = offsets.try_emplace(span.name, names.size());
    if (is_new) names.append(span.name).push_back('\0');
    PackedSpan packed{span, found->second};
    packed.span.name = nullptr;
    append(body, packed);
  }
  for (const trace::Sample& sample : recording.memory) append(body, sample);
  std::string bytes;
  append(bytes, Header{names.size(), recording.spans.size(), recording.memory.size(),
                       recording.num_dropped});
  return bytes + names + body;
}

trace::Recording unpack_recording(std::string_view bytes) {
  const auto header = take<Header>(bytes);
  require(header.num_name_bytes <= bytes.size(), ErrorCode::Io, "trace",
          "the names in the recording of a rank are cut off");
  const std::string names(bytes.substr(0, header.num_name_bytes));
  bytes.remove_prefix(header.num_name_bytes);
  trace::Recording recording;
  recording.num_dropped = header.num_dropped;
  for (std::uint64_t i = 0; i < header.num_spans; ++i) {
    const auto packed = take<PackedSpan>(bytes);
    require(packed.name < names.size(), ErrorCode::Io, "trace",
            "a span in the recording of a rank has no name");
    recording.spans.push_back(packed.span);
    recording.spans.back().name = trace::intern(names.c_str() + packed.name);
  }
  for (std::uint64_t i = 0; i < header.num_samples; ++i) {
    recording.memory.push_back(take<trace::Sample>(bytes));
  }
  return recording;
}

trace::Recording merge_recordings(std::vector<trace::Recording> recordings) {
  trace::Recording all;
  // Every process numbers its threads from 0, but a step's breakdown needs one thread's spans.
  std::uint32_t num_threads = 0;
  for (trace::Recording& recording : recordings) {
    const std::uint32_t first = num_threads;
    for (trace::Span& span : recording.spans) {
      if (span.thread == trace::kDeviceThread) continue;
      span.thread += first;
      num_threads = std::max(num_threads, span.thread + 1);
    }
    all.spans.insert(all.spans.end(), recording.spans.begin(), recording.spans.end());
    all.memory.insert(all.memory.end(), recording.memory.begin(), recording.memory.end());
    all.num_dropped += recording.num_dropped;
  }
  std::ranges::stable_sort(all.spans, {},
                           [](const trace::Span& s) { return std::pair(s.begin_ns, -s.end_ns); });
  std::ranges::stable_sort(all.memory, {}, &trace::Sample::time_ns);
  return all;
}

}  // namespace lockstep::tools
