// Communicators whose ranks are threads of this process, each with tensors on the CPU or on a CUDA
// device of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/link.h"

namespace lockstep::comm {

struct ThreadGroupOptions {
  double timeout_seconds = 30;
  plan::AllReducePlan default_plan = plan::AllReducePlan::automatic;
  // A modelled link between every two ranks (link.h); tensors are on the CPU then.
  std::optional<LinkSpec> link;
  // Makes the links of a rank, instead of `link`; then tensors are on the CPU, too.
  std::function<std::unique_ptr<LinkModel>(int rank)> make_links = {};
};

// Communicator r of the result belongs to rank r; give each to a thread of its own. They share the
// group: it is gone with the last of them.
// Throws Error{Usage} when world_size < 1.
std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int world_size, const ThreadGroupOptions& options = {});

// Calls fn(communicator) on world_size threads whose ThreadContext holds their rank and the world
// size, each bound to cores of its own where there are enough (runtime/cpu_cores.h), and returns
// when all are done. The first rank that fails aborts the others; its error is rethrown as Error
// with its code and the message "[rank 2] ...". An exception that is no Error becomes Error{State}.
// Throws Error{Usage} when world_size < 1.
void run_ranks(int world_size, const std::function<void(Communicator&)>& fn,
               const ThreadGroupOptions& options = {});

}  // namespace lockstep::comm
