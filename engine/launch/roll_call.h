// Ranks that share a store find out that all of them are there, and who is on which host.
#pragma once

#include "engine/comm/store/store.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::launch {

// Says who this rank is and waits for all others, then counts what the environment did not say:
// local world size, and node rank (nodes are numbered by their lowest rank).
// Called by every rank, once for a store. All that goes wrong ends the roll call for everybody, in
// the same words: Error{Usage} when ranks were told different world sizes, Error{Timeout} when some
// have not come within the time, naming them.
// Throws Error{Usage} on a rank whose local rank is not below the number of ranks on its host.
void call_roll(comm::Store& store, RankEnvironment& rank, double timeout_seconds);

}  // namespace lockstep::launch
