// Runs one function as every rank of a group, each rank on a thread of its own.
#pragma once

#include <functional>

#include "engine/comm/thread_group.h"

namespace lockstep::comm {

// Calls fn(communicator) on world_size threads whose ThreadContext holds their rank and the world
// size, each bound to cores of its own where there are enough (runtime/cpu_cores.h), and returns
// when all are done. The first rank that fails aborts the others; its error is
// rethrown as Error with its code and the message "[rank 2] ...". An exception that is no Error
// becomes Error{State}.
// Throws Error{Usage} when world_size < 1.
void run_ranks(int world_size, const std::function<void(Communicator&)>& fn,
               const ThreadGroupOptions& options = {});

}  // namespace lockstep::comm
