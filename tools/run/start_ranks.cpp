#include "tools/run/start_ranks.h"

#include <cstdio>

#include "engine/launch/launcher.h"
#include "engine/launch/process.h"
#include "engine/launch/rendezvous.h"
#include "tools/run/processes.h"

namespace lockstep::tools {

int start_ranks(const std::vector<std::string>& arguments, int num_ranks) {
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
