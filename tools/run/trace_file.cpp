#include "tools/run/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
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
  std::uint64_t num_spans = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_dropped = 0;
};
static_assert(std::is_trivially_copyable_v<trace::Span>);
static_assert(std::is_trivially_copyable_v<trace::Sample>);

constexpr char kCutOff[] = "the recording of a rank is cut off";

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::string_view& bytes) {
  require(bytes.size() >= sizeof(T), ErrorCode::Io, "trace", kCutOff);
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
  std::string bytes;
  append(bytes, Header{recording.spans.size(), recording.memory.size(), recording.num_dropped});
  for (const trace::Span& span : recording.spans) {
    append(bytes, span);  // its pointer to the name means nothing elsewhere
    bytes.append(span.name).push_back('\0');
  }
  for (const trace::Sample& sample : recording.memory) append(bytes, sample);
  return bytes;
}

trace::Recording unpack_recording(std::string_view bytes) {
  const auto header = take<Header>(bytes);
  trace::Recording recording;
  recording.num_dropped = header.num_dropped;
  for (std::uint64_t i = 0; i < header.num_spans; ++i) {
    auto span = take<trace::Span>(bytes);
    const std::size_t length = bytes.find('\0');
    require(length != std::string_view::npos, ErrorCode::Io, "trace", kCutOff);
    span.name = trace::intern(bytes.substr(0, length));
    bytes.remove_prefix(length + 1);
    recording.spans.push_back(span);
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
