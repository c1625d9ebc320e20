// --comm: by whom the ranks of a job reduce.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/launch/rendezvous.h"
#include "tools/ranks/rank_flags.h"

namespace lockstep::tools {

// Throws Error{Usage} when --comm names one that this build does not have, or that the ranks
// cannot use.
void require_comm(const RankFlags& flags);

// What every rank would find once it has been started, so that it is said once: throws Error{Usage}
// when --comm nccl is to connect ranks on the CPU, or ranks of this machine that share a GPU
// without
// --nccl-share-gpu.
void require_reachable_devices(const RankFlags& flags, DeviceType type, int num_ranks);

// A rank's communicator and its name: own, nccl or mpi.
struct RankCommunicator {
  std::unique_ptr<comm::Communicator> communicator;
  std::string name;
};

// Where --comm says nothing: nccl if every rank of the job has a GPU of its own, this build has
// NCCL, and no plan, transport or link of `own` is asked for; else own. All ranks choose alike.
// Tensors that the communicator does not reach are staged (comm/communicator.h).
// Throws what the chosen one does.
RankCommunicator make_communicator(const RankFlags& flags, const launch::Job& job, Device device);

}  // namespace lockstep::tools
