// A process as a rank, for the tutorials from 15 on. Tutorial 14 does the same step by step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/process_group.h"
#include "engine/launch/launcher.h"
#include "engine/launch/rendezvous.h"
#include "tutorials/common.h"

namespace lockstep::tutorial {

// True if a launcher, or a person, has started this process as a rank of a job.
bool is_rank();

// This process's membership in its job, and its connection to the other ranks.
class RankProcess {
 public:
  // tensors: the device type of the rank's tensors. Only CPU memory moves between processes, so
  // CUDA tensors go through it, in blocking calls (comm/communicator.h): right on any GPU, shared
  // or not. `lockstep train` uses NCCL if each rank has a GPU of its own.
  // link: modelled, between hosts if there are several (comm/link.h).
  // Throws the errors of join_job and make_process_group.
  explicit RankProcess(DeviceType tensors = DeviceType::cpu,
                       std::optional<comm::LinkSpec> link = {});

  const launch::RankEnvironment& environment() const { return job_.rank(); }
  int rank() const { return environment().rank; }
  int world_size() const { return environment().world_size; }
  // "started by lockstep run", "started by hand".
  std::string start() const;
  // The host that this rank is on, or plays to be on (run_as_hosts).
  int host() const;
  comm::Communicator& group() { return *group_; }

 private:
  launch::Job job_;
  std::unique_ptr<comm::Communicator> group_;
};

// A device for each rank of this machine; one of them is this process's own. A process that was
// started alone keeps its devices.
void count_rank_devices(Options& options);

// The main() of a tutorial whose ranks are processes, as many as --ranks says (num_ranks) when it
// starts them itself: Options::num_devices. Where the ranks of this machine are more than its GPUs,
// these become several logical devices each, as for ranks that are threads (tutorial::run_main).
int run_ranks_main(
    int argc, char** argv, std::string_view question, const Body& body, int num_ranks,
    const std::function<void(Flags&)>& add_flags = [](Flags&) {});

// Figures that ranks measure and that their starter needs for the answer. The starter makes one of
// these before it starts them; a rank without such a starter tells them to no process.
class FiguresOfRanks {
 public:
  FiguresOfRanks();

  // By one rank, once.
  static void tell(const std::vector<double>& figures);
  // Throws Error{State} if no rank told so many.
  std::vector<double> heard(std::size_t count) const;

 private:
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/figures";
};

// This program with its arguments, as it was started, and more of them.
std::vector<std::string> own_command(const std::vector<std::string>& more = {});

// Does what `lockstep run --standalone --nproc-per-node num_ranks -- command` does. Returns the
// exit code. REQUIRES: no other thread in this process.
int run_as_ranks(int num_ranks, const std::vector<std::string>& command);
// The same with your own options; the port and the token are filled in.
int run_as_ranks(launch::LaunchOptions options);

// Runs this program as the ranks of several hosts, each with a launcher of its own. All of them are
// this host, but ranks of different hosts talk over TCP, as if they were not. Returns true if all
// ended well.
bool run_as_hosts(int num_hosts, int ranks_per_host);

}  // namespace lockstep::tutorial
