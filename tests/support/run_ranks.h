// Tests name one place for ranks as threads: comm::run_ranks, with a time limit that a test can
// afford, and the errors of single ranks where a test wants to look at all of them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"

namespace lockstep::testing {

// The first error aborts the other ranks and is rethrown, with its rank in the message.
void run_ranks(int world_size, const std::function<void(comm::Communicator&)>& fn);

// What each rank's fn threw; empty where it returned. Here a rank that fails aborts nobody: the
// communicator has to tell the others by itself.
std::vector<std::optional<Error>> errors_of_ranks(
    int world_size, const std::function<void(comm::Communicator&)>& fn,
    const comm::ThreadGroupOptions& options = {});

}  // namespace lockstep::testing
