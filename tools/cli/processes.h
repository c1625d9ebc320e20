// Other programs: taking this process's place, or children whose output is read.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/launch/process.h"

namespace lockstep::tools {

// The command replaces this program. Throws Error{Io}, tagged with the operation, when it cannot be
// run.
[[noreturn]] void become(const char* operation, std::vector<std::string> words);

enum class ChildEnd { exited, out_of_time, stopped };
enum class ChildStream { out, err };

// Takes a piece of what the child printed; returns whether to go on.
using TakeOutput = std::function<bool(ChildStream, std::string_view)>;

// Reads until the process has ended (it is not reaped: waitpid does that), until so many seconds
// are over, or until take() stops it. Whatever it had started may still run.
ChildEnd read_child(launch::StartedProcess& process, double seconds, const TakeOutput& take);

// Waits for a child: its exit code, or 128 + the signal that ended it.
int reap(pid_t child);

// The last line of a stream that has letters in it.
class LastLine {
 public:
  void add(std::string_view piece);
  const std::string& text() const { return line_.empty() ? last_ : line_; }

 private:
  std::string line_;
  std::string last_;
};

}  // namespace lockstep::tools
