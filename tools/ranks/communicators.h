// --comm: by whom the ranks of a job reduce.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/launch/connect.h"
#include "tools/ranks/rank_flags.h"

namespace lockstep::tools {

// Throws Error{Usage} when this build has no such communicator, or these ranks cannot use it.
void require_comm(const RankFlags& flags);

// The communicator of this rank. Throws what the ones it chooses from do.
std::unique_ptr<comm::Communicator> make_communicator(const RankFlags& flags,
                                                      const launch::Job& job);

}  // namespace lockstep::tools
