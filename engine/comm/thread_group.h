// Communicators whose ranks are threads of this process, each with tensors on the CPU or on a CUDA
// device of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep::comm {

class Group;

// Puts a rank's side of a group behind modelled links (fixed_links in link.h, or those of a machine
// in slow motion). Its tensors are on the CPU then.
using Links = std::function<std::unique_ptr<Group>(std::unique_ptr<Group>)>;

struct ThreadGroupOptions {
  double timeout_seconds = 30;
  plan::AllReducePlan default_plan = plan::AllReducePlan::automatic;
  Links links = {};  // between every two ranks; empty: none are modelled
};

// Communicator r of the result belongs to rank r; give each to a thread of its own. They share the
// group: it is gone with the last of them.
// Throws Error{Usage} when world_size < 1.
std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int world_size, const ThreadGroupOptions& options = {});

// Calls fn(communicator) on world_size threads whose ThreadContext holds their rank and the world
// size, each bound to cores of its own where there are enough (runtime/threads.h), and returns
// when all are done. The first rank that fails aborts the others; its error is rethrown as Error
// with its code and the message "[rank 2] ...". An exception that is no Error becomes Error{State}.
// Throws Error{Usage} when world_size < 1.
void run_ranks(int world_size, const std::function<void(Communicator&)>& fn,
               const ThreadGroupOptions& options = {});

}  // namespace lockstep::comm
