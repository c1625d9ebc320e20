#include "engine/core/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/core/thread_context.h"

namespace lockstep {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("LOCKSTEP_LOG");
  const std::string_view name = text ? text : "";
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  if (name == "error") return LogLevel::error;
  return LogLevel::info;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

}  // namespace

void set_log_level(LogLevel level) {
  current_level() = level;
}

LogLevel log_level() {
  return current_level().load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view message) {
  if (level < log_level()) return;
  const ThreadContext& context = thread_context();
  std::string line;
  if (context.world_size > 1) line = fmt::format("[rank {}/{}] ", context.rank, context.world_size);
  if (level == LogLevel::debug) line += "debug: ";
  if (level == LogLevel::warning) line += "warning: ";
  if (level == LogLevel::error) line += "error: ";
  line.append(message).push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lockstep
