// Log lines on stderr, each written at once. If there are several ranks, each line has its rank in
// front: "[rank 2/4] warning: ...".
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace lockstep {

enum class LogLevel { debug, info, warning };

// Lines below this level are dropped: that of LOCKSTEP_LOG=debug|info|warning, by default info.
LogLevel log_level();

// Writes one line. The rank comes from the calling thread's ThreadContext.
void log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::debug) {
    log_line(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::info) {
    log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::warning) {
    log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
  }
}

}  // namespace lockstep
