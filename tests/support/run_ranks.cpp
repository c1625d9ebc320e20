#include "tests/support/run_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "engine/comm/process_group.h"
#include "engine/comm/store/tcp_store.h"
#include "engine/core/thread_context.h"

namespace lockstep::testing {
namespace {

// Generous for machines that run many tests at once; a correct program never comes near it.
constexpr double kTimeoutSeconds = 60;

using RankFunction = std::function<void(comm::Communicator&)>;

[[noreturn]] void run_child(int rank, int world_size, const comm::TcpStoreServerOptions& server,
                            const RankFunction& fn) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int exit_code = 0;
  try {
    comm::TcpStoreClientOptions client;
    client.port = server.port;
    client.token = server.token;
    client.rank = rank;
    comm::ProcessGroupOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.store = std::make_shared<comm::TcpStoreClient>(client);
    options.token = server.token;
    options.timeout_seconds = kTimeoutSeconds;
    thread_context().step = 0;  // as in a thread that begins, whatever the test did before
    fn(*comm::make_process_group(options));
    if (::testing::Test::HasFailure()) exit_code = 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    exit_code = 1;
  }
  std::fflush(nullptr);
  ::_exit(exit_code);
}

// The server has a thread, which may hold a lock of the allocator or of a sanitizer at any moment,
// so it starts after the last fork; the ranks try to connect until it listens.
void run_forked_ranks(int world_size, const RankFunction& fn) {
  comm::TcpStoreServerOptions options;
  options.port = comm::port_of(comm::listen_on(options.bind_address, 0));
  options.token = "the token of this test";
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < world_size; ++rank) {
    processes.push_back(::fork());
    if (processes.back() == 0) run_child(rank, world_size, options, fn);
  }
  const comm::TcpStoreServer server(options);
  for (const pid_t process : processes) {
    int status = 0;
    EXPECT_EQ(::waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0) << "a rank failed";
  }
}

}  // namespace

bool ranks_are_processes() {
  const char* const ranks = std::getenv("LOCKSTEP_TEST_RANKS");
  return ranks != nullptr && std::string_view(ranks) == "processes";
}

void run_ranks(int world_size, const RankFunction& fn) {
  if (ranks_are_processes()) return run_forked_ranks(world_size, fn);
  comm::ThreadGroupOptions options;
  options.timeout_seconds = kTimeoutSeconds;
  comm::run_ranks(world_size, fn, options);
}

std::vector<std::optional<Error>> errors_of_ranks(
    int world_size, const std::function<void(comm::Communicator&)>& fn,
    const comm::ThreadGroupOptions& options) {
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(world_size));
  comm::run_ranks(
      world_size,
      [&](comm::Communicator& communicator) {
        try {
          fn(communicator);
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(communicator.rank())].emplace(error);
        }
      },
      options);
  return errors;
}

}  // namespace lockstep::testing
