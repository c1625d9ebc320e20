#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

// Generous for machines that run many tests at once; a correct program never comes near it.
constexpr double kTimeoutSeconds = 60;

}  // namespace

void run_ranks(int world_size, const std::function<void(comm::Communicator&)>& fn) {
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
