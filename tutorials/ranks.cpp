#include "tutorials/ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/comm/communicator.h"
#include "engine/core/error.h"
#include "engine/launch/rendezvous.h"

namespace lockstep::tutorial {

namespace {

constexpr const char* kPlayedHost = "LOCKSTEP_TUTORIAL_HOST";  // the number of a played host
constexpr const char* kFigures = "LOCKSTEP_TUTORIAL_FIGURES";  // the file of FiguresOfRanks

}  // namespace

bool is_rank() {
  return launch::rank_environment(launch::current_environment()).launcher !=
         launch::Launcher::alone;
}

RankProcess::RankProcess(DeviceType tensors, std::optional<comm::LinkSpec> link)
    : job_(launch::join_job(launch::current_environment())) {
  comm::ProcessGroupOptions options;
  options.rank = rank();
  options.world_size = world_size();
  options.store = job_.store();
  options.token = job_.token();
  options.address = job_.address();
  options.link = link;
  options.host = launch::find_variable(launch::current_environment(), kPlayedHost).value_or("");
  group_ = comm::make_process_group(options);
  if (tensors == DeviceType::cuda) {
    group_ = comm::through_host(std::move(group_), Device{});
  }
}

std::string RankProcess::start() const {
  const bool is_by_hand = environment().launcher == launch::Launcher::by_hand;
  return fmt::format("started {}{}", is_by_hand ? "" : "by ", to_string(environment().launcher));
}

int RankProcess::host() const {
  const auto played = launch::find_number(launch::current_environment(), kPlayedHost);
  return played.value_or(environment().rank / environment().local_world_size);
}

void count_rank_devices(Options& options) {
  const launch::RankEnvironment me = launch::rank_environment(launch::current_environment());
  const int num_here = me.local_world_size > 0 ? me.local_world_size : me.world_size;
  options.num_devices = std::max(options.num_devices, num_here);
  if (num_here > 1) options.own_device = me.local_rank;
}

int run_ranks_main(int argc, char** argv, std::string_view question, const Body& body,
                   int num_ranks, const std::function<void(Flags&)>& add_flags) {
  const auto add_all_flags = [&](Flags& flags, Options& options) {
    count_rank_devices(options);
    flags.add_number("--ranks,--devices", options.num_devices, 1, 16,
                     "how many, if it starts them itself");
    add_flags(flags);
  };
  return run_main(argc, argv, question, body,
                  {.num_devices = num_ranks, .add_flags = add_all_flags});
}

FiguresOfRanks::FiguresOfRanks() {
  ::setenv(kFigures, path_.c_str(), /*overwrite=*/1);
}

void FiguresOfRanks::tell(const std::vector<double>& figures) {
  const char* const path = std::getenv(kFigures);
  if (path == nullptr) return;
  std::ofstream file(path);
  for (const double figure : figures) file << fmt::format("{}\n", figure);
}

std::vector<double> FiguresOfRanks::heard(std::size_t count) const {
  std::ifstream file(path_);
  std::vector<double> figures;
  for (double figure = 0; file >> figure;) figures.push_back(figure);
  require(figures.size() == count, ErrorCode::State, "figures",
          "expected {} of the ranks, found {}", count, figures.size());
  return figures;
}

std::vector<std::string> own_command(const std::vector<std::string>& more) {
  std::vector<std::string> command;
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) command.push_back(word);
  command.at(0) = std::filesystem::read_symlink("/proc/self/exe");
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

int run_as_ranks(launch::LaunchOptions options) {
  const launch::PortReservation port(0, launch::PortReservation::Scope::loopback);
  options.environment = launch::current_environment();
  options.master_port = port.port();
  options.token = launch::make_token();
  std::fflush(nullptr);
  return launch::launch_ranks(options);
}

int run_as_ranks(int num_ranks, const std::vector<std::string>& command) {
  launch::LaunchOptions options;
  options.num_ranks = num_ranks;
  options.command = command;
  return run_as_ranks(options);
}

bool run_as_hosts(int num_hosts, int ranks_per_host) {
  const launch::PortReservation port(0, launch::PortReservation::Scope::loopback);
  launch::LaunchOptions options;
  options.num_nodes = num_hosts;
  options.num_ranks = ranks_per_host;
  options.command = own_command();
  options.environment = launch::current_environment();
  options.master_port = port.port();
  options.token = launch::make_token();
  options.binding = launch::Binding::none;  // the launchers do not know that they share the cores
  std::vector<pid_t> launchers;
  std::fflush(nullptr);
  for (int host = 0; host < num_hosts; ++host) {
    launchers.push_back(::fork());
    if (launchers.back() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    options.node_rank = host;
    options.environment[kPlayedHost] = std::to_string(host);
    ::_exit(launch::launch_ranks(options));
  }
  bool all_ended_well = true;
  for (const pid_t launcher : launchers) {
    int status = 1;
    all_ended_well = ::waitpid(launcher, &status, 0) == launcher && status == 0 && all_ended_well;
  }
  return all_ended_well;
}

}  // namespace lockstep::tutorial
