// Runs programs as a user does: with arguments, in a folder, and looks at what they printed; or
// does something to them while they run.
#pragma once

#include <nlohmann/json.hpp>

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace lockstep::testing {

using Arguments = std::vector<std::string>;

struct Outcome {
  int exit_code = -1;  // 128 + signal when a signal ended the program
  std::string out;
  std::string err;
};

// Runs `lockstep arguments...` in this folder, or one of its own, and waits for its end.
Outcome run_lockstep(const Arguments& arguments, const std::filesystem::path& folder = {});

// "train --steps 3" as arguments. Words hold no spaces.
Arguments words(const std::string& text);

// Changes to this process's own environment; "" takes a variable away.
using Variables = std::map<std::string, std::string>;

// The same for "train --steps 3". Words hold no spaces.
Outcome run_command(const std::string& command, const std::filesystem::path& folder = {},
                    const Variables& variables = {});

// Expects exit code 0, and on stderr nothing.
void expect_success(const Outcome& outcome);

// Runs a command that must succeed, and returns what it printed on stdout.
std::string run_well(const std::string& command, const std::filesystem::path& folder = {});

// Runs a command that must succeed, and returns the run file that it wrote.
nlohmann::json run_file_of(const std::string& command);

// Expects this exit code and one line on stderr that holds all phrases; and no epoch on stdout:
// the mistake was found before training.
void expect_rejected(const Outcome& outcome, int exit_code,
                     const std::vector<std::string>& phrases);

// The digest that `train` printed on stdout; empty if it did not.
std::string weights_digest(const std::string& out);

std::vector<std::string> lines_of(const std::string& text);

std::size_t count_of(const std::string& text, const std::string& word);

// No line is wider than a terminal.
void expect_narrow(const std::string& text);

nlohmann::json read_json(const std::filesystem::path& path);

// All processes that descend from it are known by a mark in their environment.
class MarkedProgram {
 public:
  // Starts arguments[0] with the rest, in a folder of its own, or in this one.
  explicit MarkedProgram(const Arguments& arguments, const Variables& variables = {},
                         const std::filesystem::path& folder = {});
  // Kills what is left of it.
  ~MarkedProgram();
  MarkedProgram(const MarkedProgram&) = delete;
  MarkedProgram& operator=(const MarkedProgram&) = delete;

  pid_t process() const { return process_; }
  void send(int signal) const;
  // Waits for its end, and reads what it wrote.
  Outcome wait();
  // Its output on stdout so far.
  std::string out() const;

  // Processes alive that descend from it, itself included, rising.
  std::vector<pid_t> alive() const;
  std::size_t num_alive() const { return alive().size(); }

 private:
  TempFolder folder_;  // holds its output
  std::string mark_;
  pid_t process_ = 0;
  bool has_ended_ = false;
};

// Looks again and again until condition holds; false after four minutes.
bool wait_until(const std::function<bool()>& condition);

// `lockstep run` with these flags, running `sh -c script` as its ranks.
Arguments run_script(const std::string& flags, const std::string& script);

}  // namespace lockstep::testing
