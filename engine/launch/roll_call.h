// Ranks that share a store find out that all of them are there, and who is on which host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/comm/store/store.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::launch {

// Who wants to hear of a long wait for others.
struct WaitingNotice {
  // Called in the thread that waits, first after after_seconds, then whenever others are missing.
  // missing: their ranks, rising, at least one.
  std::function<void(const std::vector<int>& missing)> tell;
  double after_seconds = 2;
};

// What every rank of a job must have alike: {"lr", "0.1"}.
struct Setting {
  std::string name;
  std::string value;
};

// Says who this rank is and waits for all others, then counts what the environment did not say:
// local world size, and node rank (nodes are numbered by their lowest rank).
// Called by every rank, once for a store. All that goes wrong ends the roll call for everybody, in
// the same words: Error{Usage} when ranks were told different world sizes, or have different
// settings (it names the first that differs, both values and both ranks); Error{Timeout} when some
// have not come within the time, naming them.
// Throws Error{Usage} on a rank whose local rank is not below the number of ranks on its host.
void call_roll(comm::Store& store, RankEnvironment& rank, double timeout_seconds,
               const WaitingNotice& notice = {}, const std::vector<Setting>& settings = {});

}  // namespace lockstep::launch
