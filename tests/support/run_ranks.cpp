#include "tests/support/run_ranks.h"

#include <cstdlib>
#include <string_view>

#include "engine/core/thread_context.h"
#include "tests/engine/comm/process_ranks.h"

namespace lockstep::testing {
namespace {

// Generous for machines that run many tests at once; a correct program never comes near it.
constexpr double kTimeoutSeconds = 60;

}  // namespace

bool ranks_are_processes() {
  const char* const ranks = std::getenv("LOCKSTEP_TEST_RANKS");
  return ranks != nullptr && std::string_view(ranks) == "processes";
}

void run_ranks(int world_size, const std::function<void(comm::Communicator&)>& fn) {
  if (ranks_are_processes()) {
    comm::ForkedGroup group(world_size, [&fn](comm::Communicator& communicator) {
      thread_context().step = 0;  // as in a thread that begins, whatever the test did before
      fn(communicator);
    });
    for (const RankEnd& end : group.ranks().join(kTimeoutSeconds)) {
      EXPECT_EQ(end.exit_code + end.signal, 0) << end.error;
    }
    return;
  }
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
