#include "tools/learning/progress.h"

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <sstream>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[sizeof "2026-11-23"];
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

}  // namespace

std::filesystem::path progress_file() {
  const std::string state = variable("XDG_STATE_HOME");
  if (!state.empty()) return std::filesystem::path(state) / "lockstep" / "learned";
  const std::string home = variable("HOME");
  require(!home.empty(), ErrorCode::Usage, "learn",
          "neither XDG_STATE_HOME nor HOME is set; one of them says where progress is kept");
  return std::filesystem::path(home) / ".local" / "state" / "lockstep" / "learned";
}

PassedPrograms read_progress(const std::filesystem::path& file) {
  PassedPrograms progress;
  if (!std::filesystem::exists(file)) return progress;
  std::istringstream lines(read_text_file(file, "learn"));
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string program, day, more;
    words >> program >> day;
    require(
        !day.empty() && !(words >> more), ErrorCode::Io, "learn",
        "'{}', line {}: expected a program and a day, found '{}'; remove the file to begin anew",
        shown(file.string()), number, shown(line));
    progress[program] = day;
  }
  return progress;
}

void record_pass(const std::filesystem::path& file, const std::string& program) {
  PassedPrograms progress = read_progress(file);
  progress[program] = today();
  std::string text;
  for (const auto& [name, day] : progress) text += fmt::format("{} {}\n", name, day);
  std::error_code ignored;  // writing says what is wrong
  std::filesystem::create_directories(file.parent_path(), ignored);
  write_file_atomically(file, text);
}

}  // namespace lockstep::tools
