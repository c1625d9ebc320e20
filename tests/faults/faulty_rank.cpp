// A rank that all-reduces small and large buffers in turn, as training does, and breaks where the
// command line says. The fault suite (run_faults.sh) starts it and looks at what the other ranks
// say. It exits with 1 when a sum is wrong.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "engine/comm/process_group.h"
#include "engine/core/error.h"
#include "engine/launch/rendezvous.h"

namespace {

using namespace lockstep;

struct Flags {
  double comm_timeout = 2;
  std::string transport = "auto";
  std::size_t num_steps = 8;
  std::size_t large_mib = 16;
  // kill, stop: SIGKILL or SIGSTOP to itself. collective: calls another one than the others.
  std::string fault = "none";
  std::string place = "forward";
  int faulty_rank = 1;
};

bool is_faulty(const Flags& flags, int rank) {
  return flags.fault != "none" && rank == flags.faulty_rank;
}

void break_at(const Flags& flags, int rank, std::string_view place) {
  if (!is_faulty(flags, rank) || flags.place != place) return;
  if (flags.fault == "kill") ::raise(SIGKILL);
  if (flags.fault == "stop") ::raise(SIGSTOP);
}

// Dies or stops while data moves: a few milliseconds after the operation began, which takes longer.
void break_during(const Flags& flags, int rank, comm::Communicator& group, const Tensor& buffer) {
  if (!is_faulty(flags, rank) || flags.place != "all-reduce") return;
  comm::Work work = group.all_reduce(buffer, {.launch = comm::Launch::async});
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  break_at(flags, rank, "all-reduce");
  work.wait();
}

void all_reduce_large(const Flags& flags, int rank, comm::Communicator& group) {
  const Tensor buffer = Tensor::zeros({flags.large_mib << 18});
  if (is_faulty(flags, rank) && flags.fault == "collective") group.broadcast(buffer, 0);
  break_during(flags, rank, group, buffer);
  group.all_reduce(buffer);
}

void check_small_sum(comm::Communicator& group) {
  const int n = group.world_size();
  const Tensor buffer = Tensor::full({1000}, group.rank() + 1);
  group.all_reduce(buffer);
  for (const double sum : buffer.to_vector<double>()) {
    require(sum == n * (n + 1) / 2, ErrorCode::Numeric, "check", "a sum is {}", sum);
  }
}

void run(const Flags& flags) {
  const launch::Environment environment = launch::current_environment();
  const int claimed_rank = launch::rank_environment(environment).rank;
  break_at(flags, claimed_rank, "before-rendezvous");
  launch::JoinOptions join;
  join.timeout_seconds = flags.comm_timeout;
  const launch::Job job = launch::join_job(environment, join);
  const int rank = job.rank().rank;
  break_at(flags, rank, "rendezvous");

  comm::ProcessGroupOptions options;
  options.rank = rank;
  options.world_size = job.rank().world_size;
  options.store = job.store();
  options.token = job.token();
  options.address = job.address();
  options.transport = comm::parse_transport_choice(flags.transport);
  options.timeout_seconds = flags.comm_timeout;
  const auto group = comm::make_process_group(options);
  if (rank == 0) fmt::print("{}\n", group->description());
  std::fflush(stdout);

  for (std::size_t step = 0; step < flags.num_steps; ++step) {
    if (step == 2) break_at(flags, rank, "forward");
    check_small_sum(*group);
    all_reduce_large(flags, rank, *group);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A rank that breaks where it is told");
  Flags flags;
  app.add_option("--comm-timeout", flags.comm_timeout);
  app.add_option("--transport", flags.transport);
  app.add_option("--steps", flags.num_steps);
  app.add_option("--large-mib", flags.large_mib);
  app.add_option("--fault", flags.fault);
  app.add_option("--place", flags.place);
  app.add_option("--rank", flags.faulty_rank);
  CLI11_PARSE(app, argc, argv);
  try {
    run(flags);
    return 0;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "faulty_rank: {}\n", error.what());
    return lockstep::exit_code(error.code());
  }
}
