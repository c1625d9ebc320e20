#include "tests/tools/running_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace lockstep::testing {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  return {ends[0], ends[1]};
}

}  // namespace

RunningProgram::RunningProgram(const Arguments& arguments) {
  const Pipe in = make_pipe();
  const Pipe out = make_pipe();
  const Pipe err = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  std::string program = LOCKSTEP_PROGRAM;
  std::vector<std::string> words = arguments;
  std::vector<char*> argv{program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  for (const int end : {in.read, out.write, err.write}) ::close(end);
  in_ = in.write;
  out_ = out.read;
  err_ = err.read;
  if (error != 0) throw std::runtime_error("cannot start " + program);
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int end : {in_, out_, err_}) {
    if (end >= 0) ::close(end);
  }
}

std::string RunningProgram::read_line(int descriptor) {
  std::string line;
  char c = 0;
  while (::read(descriptor, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

void RunningProgram::close_input() {
  ::close(in_);
  in_ = -1;
}

void RunningProgram::send(int signal) {
  ::kill(pid_, signal);
}

Outcome RunningProgram::wait() {
  Outcome outcome;
  for (std::string line = read_line(); !line.empty(); line = read_line())
    outcome.out += line + "\n";
  for (std::string line = read_error_line(); !line.empty(); line = read_error_line()) {
    outcome.err += line + "\n";
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace lockstep::testing
