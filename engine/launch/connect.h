// Joining a job: from the environment to a store that all ranks of the job share.
//
// Rank 0 serves the store, at the address that was named; the others knock until it is there. Then
// every rank says its number, the world size it was told and its host, and all wait for each other.
// Communication between ranks (comm/process_group.h) is set up over the store afterwards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/store/store.h"
#include "engine/launch/rank_environment.h"
#include "engine/launch/roll_call.h"

namespace lockstep::launch {

struct JoinOptions {
  double timeout_seconds = 30;         // for all ranks to come
  std::string init_method = "env://";  // see init_method.h
  WaitingNotice waiting;               // on every rank that waits for others
  std::vector<Setting> settings = {};  // that all ranks must have alike
};

// A rank's membership. Keep it as long as the store is used: rank 0's holds the server.
class Job {
 public:
  // Rank 0 leaves last: it waits up to two seconds until the other ranks have left the store, or
  // half a second where an error ends it.
  ~Job();
  Job(Job&&) noexcept;
  Job& operator=(Job&&) = delete;

  // Complete: local world size and node rank have been counted where the environment did not say.
  const RankEnvironment& rank() const;
  // Rank 0 of 1 has a store of its own in memory.
  const std::shared_ptr<comm::Store>& store() const;
  const std::string& token() const;
  // Of this host, as the host that serves the store sees it: under which others can reach this one.
  const std::string& address() const;

 private:
  friend Job join_job(const Environment& environment, const JoinOptions& options);
  struct State;
  explicit Job(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Throws Error{Usage} when the environment is contradictory (rank_environment.h), several hosts
// have no token, a token is too short (job_token.h), or ranks were told different world sizes or
// have different settings;
// Error{Timeout} on every rank that waits when ranks are missing, naming them; Error{Comm} on every
// rank when one failed, naming it, and when the port is in use. DuplicateRank (comm/comm_errors.h) on
// this rank alone when another process is this rank of the job already, or the job is complete
// without it: the job goes on undisturbed.
Job join_job(const Environment& environment, const JoinOptions& options = {});

}  // namespace lockstep::launch
