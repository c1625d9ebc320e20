#include "tools/doctor/examined_program.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/launch/process.h"
#include "tools/cli/processes.h"

namespace lockstep::doctor {
namespace {

constexpr std::size_t kMostKept = std::size_t{1} << 20;

// The last line of a stream that has letters in it.
class LastLine {
 public:
  void add(std::string_view piece) {
    for (const char c : piece) {
      if (c != '\n') {
        line_ += c;
      } else if (!line_.empty()) {
        last_ = std::exchange(line_, {});
      }
    }
  }
  const std::string& text() const { return line_.empty() ? last_ : line_; }

 private:
  std::string line_;
  std::string last_;
};

}  // namespace

Examined run_examined(const std::vector<std::string>& command, const std::filesystem::path& folder,
                      double timeout_seconds) {
  launch::Environment environment = launch::current_environment();
  const std::string program = launch::find_program(command.at(0), environment, "doctor");
  environment["LOCKSTEP_AUDIT"] = folder.string();
  const bool adopted_before = launch::adopt_orphans(true);
  launch::StartedProcess started = launch::start_process(program, command, environment);
  Examined examined;
  LastLine last_error;
  const auto take = [&](tools::ChildStream stream, std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stderr);
    if (stream == tools::ChildStream::err) {
      last_error.add(piece);
    } else {
      std::string& kept = examined.output;
      kept += piece.substr(0, kMostKept - std::min(kMostKept, kept.size()));
    }
    return true;
  };
  const tools::ChildEnd end = tools::read_child(started, std::min(timeout_seconds, 1e6), take);
  examined.has_timed_out = end == tools::ChildEnd::out_of_time;
  examined.exit_code = 128 + SIGKILL;
  if (!examined.has_timed_out) {
    int status = 0;
    ::waitpid(started.id, &status, 0);
    examined.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  launch::kill_descendants();
  launch::adopt_orphans(adopted_before);
  examined.last_error = last_error.text();
  return examined;
}

}  // namespace lockstep::doctor
