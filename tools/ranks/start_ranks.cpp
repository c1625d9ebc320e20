#include "tools/ranks/start_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/launch/process.h"
#include "engine/launch/rendezvous.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/processes.h"

namespace lockstep::tools {
namespace {

[[noreturn]] void become_mpirun(const std::vector<std::string>& arguments, int num_ranks) {
  const launch::Environment environment = launch::current_environment();
  std::string program;
  try {
    program = launch::find_program("mpirun", environment);
  } catch (const Error&) {
    fail(ErrorCode::Usage, "--comm",
         "mpi: there is no mpirun in PATH; install Open MPI (Debian: openmpi-bin), or use --comm "
         "own");
  }
  std::vector<std::string> words{program, "-np", std::to_string(num_ranks)};
  if (geteuid() == 0) words.push_back("--allow-run-as-root");
  if (static_cast<std::size_t>(num_ranks) > runtime::num_cores())
    words.push_back("--oversubscribe");
  words.push_back(this_program());
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  fmt::print(stderr, "lockstep: starting the ranks: {}\n", fmt::join(words, " "));
  become("--comm", words);
}

}  // namespace

std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

int start_ranks(const RankFlags& flags, const std::vector<std::string>& arguments, int num_ranks) {
  if (flags.comm == "mpi") become_mpirun(arguments, num_ranks);
  launch::LaunchOptions options;
  options.command = {this_program()};
  options.command.insert(options.command.end(), arguments.begin() + 1, arguments.end());
  options.environment = launch::current_environment();
  options.num_ranks = num_ranks;
  options.token = launch::make_token();
  options.lines = launch::Lines::plain;
  const launch::PortReservation port(0, launch::PortReservation::Scope::loopback);
  options.master_port = port.port();
  std::fflush(nullptr);
  return launch::launch_ranks(options);
}

}  // namespace lockstep::tools
