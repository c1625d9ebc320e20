#include "tools/report/packed_recording.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>

#include "engine/core/error.h"

namespace lockstep::tools {
namespace {

struct Header {
  std::uint64_t num_name_bytes = 0;
  std::uint64_t num_spans = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_dropped = 0;
};

// A span whose name is an offset into the names, each of which ends with a zero.
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
  for (const trace::Recording& recording : recordings) {
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
