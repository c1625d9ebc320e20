// Runs this process as one rank of a job, from joining to leaving.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/device.h"
#include "engine/launch/rendezvous.h"
#include "tools/flags/rank_flags.h"

namespace lockstep::tools {

// The things that a rank has for its work.
struct RankJob {
  const launch::RankEnvironment& environment;
  Device device;  // cuda:LOCAL_RANK or cpu:LOCAL_RANK
  comm::Store& store;
  comm::Communicator& communicator;
  std::string comm;  // own or nccl
  double timeout_seconds;

  int rank() const { return environment.rank; }
  int world_size() const { return environment.world_size; }
  bool is_first() const { return rank() == 0; }
};

// Takes the device of the local rank, joins the job, connects, and calls work. settings: the flags
// that must be alike on all ranks.
// An error of this rank ends the job for all: the others' calls fail with its message.
void run_as_rank(const RankFlags& flags, DeviceType type,
                 const std::vector<launch::Setting>& settings,
                 const std::function<void(RankJob&)>& work);

// Calls work and rethrows its errors, with their code, as "[rank 2] ...".
void name_rank_in_errors(const launch::RankEnvironment& rank, const std::function<void()>& work);

// The number of this host's ranks that share this rank's cores; 1 if a launcher gave it its own.
std::size_t num_ranks_on_cores(const launch::RankEnvironment& rank);

// Returns every rank's bytes by rank; empty on all ranks but 0. Every rank of the job calls it once
// with the same name. It is meant for text about the work, of any size; the work itself uses
// collectives.
std::vector<std::string> gather_at_rank_zero(RankJob& job, const std::string& name,
                                             const std::string& bytes);

// Returns when every rank has called it with this name.
void wait_for_all_ranks(RankJob& job, const std::string& name);

// "rank 0 of 4 (lockstep run), own: auto over shm".
std::string describe_job(const RankJob& job);

}  // namespace lockstep::tools
