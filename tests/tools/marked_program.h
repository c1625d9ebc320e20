// A program that runs while a test does something to it, with an environment of its own and a mark
// by which all processes that descend from it are known.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {

// Changes to this process's own environment; "" takes a variable away.
using Variables = std::map<std::string, std::string>;

class MarkedProgram {
 public:
  // Starts arguments[0] with the rest. Its folder is one of its own.
  explicit MarkedProgram(const Arguments& arguments, const Variables& variables = {});
  // Kills what is left of it.
  ~MarkedProgram();
  MarkedProgram(const MarkedProgram&) = delete;
  MarkedProgram& operator=(const MarkedProgram&) = delete;

  pid_t process() const { return process_; }
  void send(int signal) const;
  // Waits for its end, and reads what it wrote.
  Outcome wait();
  // What it wrote so far.
  std::string out() const;
  std::string err() const;

  // Processes alive that descend from it, itself included, rising.
  std::vector<pid_t> alive() const;
  std::size_t num_alive() const { return alive().size(); }

 private:
  TempFolder folder_;
  std::string mark_;
  pid_t process_ = 0;
  bool has_ended_ = false;
};

// Looks again and again until condition holds; false after 20 seconds.
bool wait_until(const std::function<bool()>& condition);

// `lockstep run` with these flags, running `sh -c script` as its ranks.
Arguments run_script(const std::string& flags, const std::string& script);

}  // namespace lockstep::testing
