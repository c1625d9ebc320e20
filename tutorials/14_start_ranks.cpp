// 14: How do you start the ranks of one training by hand, and how do they find each other?
//
// Two processes of one training know nothing of each other. Each must be told which rank it is, how
// many there are, and where to meet. That is all that the variables RANK, WORLD_SIZE and
// MASTER_ADDR say; LOCAL_RANK says which device of its machine it takes.
//
// You will see: what RANK, LOCAL_RANK and WORLD_SIZE are on one machine and on two; and processes
// that are started as from terminals, each with its own variables, meet, and add up a number each.
// PyTorch reads the same variables in init_process_group("env://").
//
// Run:  14_start_ranks [--ranks 4] [--forget WORLD_SIZE] [--device auto|cpu|cuda] [--fast]
// plays all four terminals itself. By hand: open four, and in number r (0 to 3) type
//   export RANK=r LOCAL_RANK=r WORLD_SIZE=4
//   14_start_ranks
//
// Expected output with --fast: tutorials/expected/14.txt

#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <map>
#include <set>

#include "engine/comm/process_group.h"
#include "engine/core/error.h"
#include "engine/launch/rank_environment.h"
#include "engine/launch/rendezvous.h"
#include "tutorials/common.h"
#include "tutorials/ranks.h"

namespace {

using namespace lockstep;

using Variables = std::map<std::string, std::string>;
std::string forgotten = "WORLD_SIZE";  // --forget

// Every process has its own copy of this; threads would share it. What others shall know is sent.
int changed = 0;

// Ranks are counted from machine to machine, local ranks from 0 on each.
void print_ranks(int num_machines, int ranks_per_machine) {
  fmt::print("{} x {}: WORLD_SIZE={} for all\n", num_machines, ranks_per_machine,
             num_machines * ranks_per_machine);
  for (int machine = 0; machine < num_machines; ++machine) {
    fmt::print("  machine {}", machine);
    for (int local_rank = 0; local_rank < ranks_per_machine; ++local_rank) {
      fmt::print("  RANK={} LOCAL_RANK={}", machine * ranks_per_machine + local_rank, local_rank);
    }
    fmt::print("\n");
  }
}

// The work of each process.
void be_a_rank(const tutorial::Options& options) {
  // 1. Who am I? One function reads the variables, whoever has set them.
  const launch::Environment environment = launch::current_environment();
  const launch::RankEnvironment me = launch::rank_environment(environment);
  const Device device = launch::device_of_rank(me, options.device_type, me.world_size);
  fmt::print("rank {} of {}, started {}, takes {}\n", me.rank, me.world_size,
             to_string(me.launcher), to_string(device));

  // 2. Where are the others? Rank 0 listens at MASTER_ADDR:MASTER_PORT, the others come there.
  const launch::Job job = launch::join_job(environment);

  // 3. Connect: shared memory inside a machine, TCP between machines.
  comm::ProcessGroupOptions group_options;
  group_options.rank = me.rank;
  group_options.world_size = me.world_size;
  group_options.store = job.store();
  group_options.token = job.token();
  group_options.address = job.address();
  const auto group = comm::make_process_group(group_options);

  // 4. From here on it is as with threads.
  changed += 10 * me.rank;
  const Tensor sum = Tensor::from(std::vector<std::int64_t>{changed}, {1});
  group->all_reduce(sum);
  fmt::print("my own copy of `changed` is {}; the sum over all ranks is {}\n", changed,
             sum.to_vector<std::int64_t>()[0]);
}

// A process that is started with variables of its own and whose output is kept.
struct Terminal {
  pid_t process = 0;
  int output = -1;
};

Terminal open_terminal(const Variables& variables) {
  const std::vector<std::string> command = tutorial::own_command();
  std::array<int, 2> pipe_ends{};
  require(::pipe2(pipe_ends.data(), O_CLOEXEC) == 0, ErrorCode::Io, "terminal", "no pipe");
  std::fflush(nullptr);
  const pid_t process = ::fork();  // a copy of this process ...
  require(process >= 0, ErrorCode::Io, "terminal", "cannot make a process");
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::dup2(pipe_ends[1], STDERR_FILENO);
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execv(words[0], words.data());  // ... that becomes this program, from its beginning
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  return {process, pipe_ends[0]};
}

// Returns what it wrote until its end; exit_code is set.
std::string close_terminal(const Terminal& terminal, int& exit_code) {
  std::string text;
  std::array<char, 4096> bytes;
  for (ssize_t n = 0; (n = ::read(terminal.output, bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), n);
  }
  ::close(terminal.output);
  int status = 0;
  ::waitpid(terminal.process, &status, 0);
  exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return text;
}

int play_terminals(int num_ranks) {
  using launch::PortReservation;
  const PortReservation port(0, PortReservation::Scope::loopback);  // a free one
  std::vector<Terminal> terminals;
  std::set<pid_t> processes;
  for (int r = 0; r < num_ranks; ++r) {
    terminals.push_back(open_terminal({{"RANK", std::to_string(r)},
                                       {"LOCAL_RANK", std::to_string(r)},
                                       {"WORLD_SIZE", std::to_string(num_ranks)},
                                       {"MASTER_PORT", std::to_string(port.port())}}));
    processes.insert(terminals.back().process);
  }
  const int sum = 10 * num_ranks * (num_ranks - 1) / 2;
  bool all_have_the_sum = true;
  for (int r = 0; r < num_ranks; ++r) {
    int exit_code = 0;
    std::string text = close_terminal(terminals[r], exit_code);
    all_have_the_sum =
        all_have_the_sum && exit_code == 0 && text.ends_with(fmt::format("ranks is {}\n", sum));
    for (std::size_t at = 0; (at = text.find('\n', at)) + 1 < text.size();) text.insert(++at, "  ");
    fmt::print("terminal {}\n  $ export RANK={} LOCAL_RANK={} WORLD_SIZE={} MASTER_PORT={}\n",
               r + 1, r, r, num_ranks, port.port());
    fmt::print("  $ 14_start_ranks\n  {}", text);
  }
  tutorial::check("as many processes as terminals", processes.size() == terminals.size());
  tutorial::check(fmt::format("every rank holds the sum that one process computes, {}", sum),
                  all_have_the_sum);
  return sum;
}

void run(const tutorial::Options& options) {
  if (tutorial::is_rank()) return be_a_rank(options);
  tutorial::step(1, "who is who");
  print_ranks(/*num_machines=*/2, /*ranks_per_machine=*/2);
  print_ranks(/*num_machines=*/1, /*ranks_per_machine=*/3);
  fmt::print("RANK says which part of the data is mine, LOCAL_RANK which local device.\n");
  const int num_ranks = options.num_devices;
  tutorial::step(2, fmt::format("{} terminals", num_ranks));
  const int sum = play_terminals(num_ranks);
  tutorial::step(3, "a variable is forgotten");
  launch::Environment environment{{"RANK", "0"}, {"WORLD_SIZE", "4"}};
  environment.erase(forgotten);
  const std::string error = tutorial::expect_error([&] { launch::rank_environment(environment); });
  tutorial::say(error, 2);
  tutorial::check(fmt::format("without {}, the error names it", forgotten),
                  error.find(forgotten) != std::string::npos);
  tutorial::answer(
      fmt::format(
          "Each rank is a process whose variables say who it is (RANK), which device it takes "
          "(LOCAL_RANK) and how many ranks there are ({}). Rank 0 listens at MASTER_ADDR, and the "
          "others connect to it. The sum of {} separate copies is then {} on all of them.",
          num_ranks, num_ranks, sum),
      {{"--ranks 6", "six terminals, the sum 0 + 10 + ... + 50"},
       {"--forget RANK", "another variable is forgotten, and the error names that one"}});
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kQuestion =
      "How do you start the ranks of one training by hand, and how do they find each other?";
  return lockstep::tutorial::run_ranks_main(
      argc, argv, kQuestion, run, /*num_ranks=*/4, [](lockstep::tutorial::Flags& flags) {
        flags.add_choice("--forget", forgotten, {"RANK", "WORLD_SIZE"}, "the variable of step 3");
      });
}
