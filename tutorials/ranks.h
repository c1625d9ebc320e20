// A process as a rank, for the tutorials from 12 on. Tutorial 11 does the same step by step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/process_group.h"
#include "engine/launch/connect.h"
#include "engine/launch/worker_group.h"

namespace lockstep::tutorial {

// Whether a launcher, or a person, has started this process as a rank of a job.
bool is_rank();

// This process's membership in its job, and its connection to the other ranks.
class RankProcess {
 public:
  // Throws what join_job and make_process_group throw.
  RankProcess();

  const launch::RankEnvironment& environment() const { return job_.rank(); }
  int rank() const { return environment().rank; }
  int world_size() const { return environment().world_size; }
  // Which host this rank is on, or plays that it is on (run_as_hosts).
  int host() const;
  comm::Communicator& group() { return *group_; }

 private:
  launch::Job job_;
  std::unique_ptr<comm::Communicator> group_;
};

// This program with its arguments, as it was started, and more of them.
std::vector<std::string> own_command(const std::vector<std::string>& more = {});

// What `lockstep run --standalone --nproc-per-node num_ranks -- command` does. Returns the exit
// code. REQUIRES: no other thread in this process.
int run_as_ranks(int num_ranks, const std::vector<std::string>& command);
// The same with options of one's own; the port and the token are filled in.
int run_as_ranks(launch::WorkerGroupOptions options);

// This program as the ranks of several hosts, each with a launcher of its own; all are this host,
// but the ranks act as if they were not: those of different hosts talk over TCP. Returns whether
// all ended well.
bool run_as_hosts(int num_hosts, int ranks_per_host);

}  // namespace lockstep::tutorial
