#include "engine/core/log.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/core/thread_context.h"

namespace lockstep {
namespace {

LogLevel level_from_environment() {
  const char* const text = std::getenv("LOCKSTEP_LOG");
  const std::string_view name = text ? text : "info";
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  if (name != "info") {
    fmt::print(stderr, "warning: LOCKSTEP_LOG is '{}', expected debug, info or warning\n", name);
  }
  return LogLevel::info;
}

}  // namespace

LogLevel log_level() {
  static const LogLevel level = level_from_environment();
  return level;
}

void log_line(LogLevel level, std::string_view message) {
  if (level < log_level()) return;
  const ThreadContext& context = thread_context();
  std::string line;
  if (context.world_size > 1) line = fmt::format("[rank {}/{}] ", context.rank, context.world_size);
  if (level == LogLevel::debug) line += "debug: ";
  if (level == LogLevel::warning) line += "warning: ";
  line.append(message).push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lockstep
