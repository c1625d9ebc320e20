// Communicators whose ranks are threads of this process, each with tensors on the CPU or on a CUDA
// device of its own.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/transport/link/link_spec.h"

namespace lockstep::comm {

struct ThreadGroupOptions {
  double timeout_seconds = 30;
  plan::AllReducePlan default_plan = plan::AllReducePlan::automatic;
  // Between every two ranks, modelled (transport/link/fixed_link.h); then tensors are on the
  // CPU.
  std::optional<LinkSpec> link;
};

// Communicator r of the result belongs to rank r; give each to a thread of its own. They share the
// group: it is gone with the last of them. While a machine is acted out (act/machine.h), rank r is
// on its r-th device, and the links are the machine's.
// Throws Error{Usage} when world_size < 1, or is not the number of that machine's devices.
std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int world_size, const ThreadGroupOptions& options = {});

}  // namespace lockstep::comm
