// Runs other programs: in place of this process, or as children whose output is read.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/launch/process.h"

namespace lockstep::tools {

// Replaces this program by the command. Throws Error{Io}, tagged with the operation, if it cannot
// run.
[[noreturn]] void become(const char* operation, std::vector<std::string> words);

enum class ChildEnd { exited, out_of_time, stopped };
enum class ChildStream { out, err };

// Takes a piece of the child's output; returns true to go on.
using TakeOutput = std::function<bool(ChildStream, std::string_view)>;

// Reads until the process has ended (waitpid has yet to reap it), the time is up, or take() stops
// it. Processes that it has started may still run.
ChildEnd read_child(launch::StartedProcess& process, double seconds, const TakeOutput& take);

// Waits for a child and returns its exit code, or 128 + the signal that ended it.
int reap(pid_t child);

// Keeps the last line of a stream that contains letters.
class LastLine {
 public:
  void add(std::string_view piece);
  const std::string& text() const { return line_.empty() ? last_ : line_; }

 private:
  std::string line_;
  std::string last_;
};

}  // namespace lockstep::tools
