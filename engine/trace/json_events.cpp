#include "engine/trace/json_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"

namespace lockstep::trace {

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

void save_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream file(path, std::ios::binary);
  require(file.is_open(), ErrorCode::Io, "trace", "cannot write {}: {}", path.string(),
          std::strerror(errno));
  write(file);
  file.close();
  require(!file.fail(), ErrorCode::Io, "trace", "writing {} failed; is the disk full?",
          path.string());
}

}  // namespace lockstep::trace
