#include "engine/trace/json_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "engine/core/atomic_file.h"
#include "engine/trace/bytes_in_flight.h"
#include "engine/trace/clock_offset.h"

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
  for (const Sample& sample : bytes_in_flight(recording.spans, rank)) {
    add("bytes in flight", sample);
  }
}

std::string clock_members(const Recording& recording, int rank) {
  const auto found = recording.clocks.find(rank);
  const ClockOffset clock = found == recording.clocks.end() ? ClockOffset{} : found->second;
  return fmt::format(R"("offset_ns":{},"drift_ns":{},"error_ns":{})", clock.offset_ns,
                     clock.drift_ns, clock.error_ns);
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

}  // namespace lockstep::trace
