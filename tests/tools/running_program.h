// The program while it runs: for tests that talk to it, watch what it says, and end it.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {

// `lockstep arguments...`; ended, if it still runs, when this object goes.
class RunningProgram {
 public:
  explicit RunningProgram(const Arguments& arguments);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t pid() const { return pid_; }

  // The next line that it prints; waits for it. Empty at the end of the output.
  std::string read_line() { return read_line(out_); }
  std::string read_error_line() { return read_line(err_); }

  // Ends its standard input.
  void close_input();

  void send(int signal);

  // Waits for its end: exit code, or 128 + signal, and what it printed since.
  Outcome wait();

 private:
  static std::string read_line(int descriptor);

  pid_t pid_ = 0;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
};

}  // namespace lockstep::testing
