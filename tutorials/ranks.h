// A process as a rank, for the tutorials from 12 on. Tutorial 11 does the same step by step.
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
  // tensors: where those of the rank are. Between processes only memory of the CPU moves, so CUDA
  // tensors are carried through it, blocking (comm/communicator.h): right on any GPU, shared
  // or not. `lockstep train` uses NCCL where each rank has a GPU of its own.
  // link: modelled, between hosts where there are several (comm/link.h).
  // Throws what join_job and make_process_group throw.
  explicit RankProcess(DeviceType tensors = DeviceType::cpu,
                       std::optional<comm::LinkSpec> link = {});

  const launch::RankEnvironment& environment() const { return job_.rank(); }
  int rank() const { return environment().rank; }
  int world_size() const { return environment().world_size; }
  // "started by lockstep run", "started by hand".
  std::string start() const;
  // Which host this rank is on, or plays that it is on (run_as_hosts).
  int host() const;
  comm::Communicator& group() { return *group_; }

 private:
  launch::Job job_;
  std::unique_ptr<comm::Communicator> group_;
};

// A device for each rank of this machine, of which one is this process's own. A process that was
// started alone keeps the devices that it has.
void count_rank_devices(Options& options);

// The main() of a tutorial whose ranks are processes, as many as --ranks says (num_ranks) when it
// starts them itself: Options::num_devices. Where the ranks of this machine are more than its GPUs,
// these become several logical devices each, as for ranks that are threads (tutorial::run_main).
int run_ranks_main(
    int argc, char** argv, std::string_view question, const Body& body, int num_ranks,
    const std::function<void(Flags&)>& add_flags = [](Flags&) {});

// Figures that ranks measure and their starter, which prints the answer, wants to know. The starter
// makes one of these before it starts them; a rank that was started otherwise tells nobody.
class FiguresOfRanks {
 public:
  FiguresOfRanks();
  ~FiguresOfRanks();
  FiguresOfRanks(const FiguresOfRanks&) = delete;
  FiguresOfRanks& operator=(const FiguresOfRanks&) = delete;

  // By one rank, once.
  static void tell(const std::vector<double>& figures);
  // Throws Error{State} when no rank told so many.
  std::vector<double> heard(std::size_t count) const;

 private:
  std::string path_;
};

// This program with its arguments, as it was started, and more of them.
std::vector<std::string> own_command(const std::vector<std::string>& more = {});

// Does what `lockstep run --standalone --nproc-per-node num_ranks -- command` does. Returns the
// exit code. REQUIRES: no other thread in this process.
int run_as_ranks(int num_ranks, const std::vector<std::string>& command);
// The same with options of one's own; the port and the token are filled in.
int run_as_ranks(launch::LaunchOptions options);

// This program as the ranks of several hosts, each with a launcher of its own; all are this host,
// but the ranks act as if they were not: those of different hosts talk over TCP. Returns whether
// all ended well.
bool run_as_hosts(int num_hosts, int ranks_per_host);

}  // namespace lockstep::tutorial
