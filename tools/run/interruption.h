// Ctrl-C (SIGINT) and SIGTERM: a command ends what it is at, writes what is done, and exits with
// 128 + the signal.
#pragma once

#include <optional>
#include <string>

namespace lockstep::tools {

// While it lives, the first SIGINT or SIGTERM is only noted, for the work to ask for; a second one
// ends the process at once. Within a fifth of a second it counts as the first one: a terminal and a
// launcher may both pass on the same key press. A signal that is ignored (nohup) stays so.
// REQUIRES: there is no other one.
class Interruption {
 public:
  // what_ends: what the first signal still waits for, "this step", which it says on stderr. It must
  // outlive the object; nullptr: nothing is said.
  explicit Interruption(const char* what_ends);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // The first signal; 0: none has come.
  static int signal();
  // One of these objects lives.
  static bool is_watched();
};

// Work that ends in the middle, where nothing of it can be kept.
struct Interrupted {
  int signal = 0;
};
// Throws Interrupted if a signal has come.
void throw_if_interrupted();

// The work's result, unless it throws Interrupted.
template <typename Work>
auto unless_interrupted(const Work& work) -> std::optional<decltype(work())> {
  try {
    return work();
  } catch (const Interrupted&) {
    return std::nullopt;
  }
}

// "SIGINT" or "SIGTERM".
std::string signal_name(int signal);

// Prints "lockstep: interrupted by SIGINT after 3 of 9 rows; wrote run.json" on stderr, and returns
// the exit code. done: "3 of 9 rows". written: files, separated by commas; empty: nothing.
int say_interrupted(int signal, const std::string& done, const std::string& written);

}  // namespace lockstep::tools
