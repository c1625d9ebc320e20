// Tests name one place for ranks as threads: comm::run_ranks, with a time limit that a test can
// afford, and the errors of single ranks where a test wants to look at all of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"

namespace lockstep::testing {

// True with LOCKSTEP_TEST_RANKS=processes: then run_ranks() forks a process for each rank. What fn
// expects counts; what it writes into the test's variables is lost.
bool ranks_are_processes();

// The first error aborts the other ranks and is rethrown, with its rank in the message.
void run_ranks(int world_size, const std::function<void(comm::Communicator&)>& fn);

// One error per rank; empty if its fn returned. Here a rank that fails does not abort the others:
// the communicator has to tell them by itself.
std::vector<std::optional<Error>> errors_of_ranks(
    int world_size, const std::function<void(comm::Communicator&)>& fn,
    const comm::ThreadGroupOptions& options = {});

}  // namespace lockstep::testing

// For a test that looks at what ranks wrote into one memory, or that is about threads.
#define LOCKSTEP_THREAD_RANKS_ONLY(reason)                            \
  if (::lockstep::testing::ranks_are_processes()) {                   \
    GTEST_SKIP() << "a test of ranks that are threads: " << (reason); \
  }                                                                   \
  static_assert(true, "")
