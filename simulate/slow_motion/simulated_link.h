// One rank's view of the links of a machine that is simulated in slow motion (machine.h): messages
// take the route between two of its devices, and share it with all others on it.
//
// A rank's part of a collective begins when its device has come to the call, the call's data has
// been written, and the collective before is over. A step of its plan begins when the one before is
// done: its messages have arrived, their values have been added (three times their bytes through
// the device's memory), and a kernel has been launched for it. All of that is slower while the
// device computes. So a step costs the predictor's charge for it (predict::plan_seconds).
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "engine/comm/link.h"
#include "engine/comm/thread_group.h"
#include "simulate/slow_motion/machine.h"

namespace lockstep::slow_motion {

class SimulatedLink final : public comm::LinkModel {
 public:
  // Rank r of the group is on devices[r]. All of them take part in the machine, which must outlive
  // this.
  SimulatedLink(Machine& machine, int rank, std::span<const int> devices);

  std::string description() const override;
  Between between() const override { return Between::all_ranks; }
  std::span<const int> hosts() const override { return hosts_; }

  void note_call(const comm::CallHeader& call) override;
  Time begin_call(const comm::CallHeader& call) override;
  Time latency() const override { return {}; }
  Time begin_step(Time arrived) override;
  Time leave(int to, Time ready, std::size_t num_bytes) override;
  Time arrive(int from, Time arrival, std::size_t num_bytes) override;
  Time end_call(Time arrived) override;
  void abandon_call() noexcept override;
  Time begin_message(comm::Bytes data) override;
  void end_message(Time arrived) override;

 private:
  int device() const { return devices_[static_cast<std::size_t>(rank_)]; }

  Machine& machine_;
  int rank_;
  std::vector<int> devices_;  // indexed by rank
  std::vector<int> hosts_;    // indexed by rank; empty: one host
  comm::CallHeader call_;
  Time call_begin_{};                    // when all ranks' data are there
  std::atomic<std::thread::id> caller_;  // makes the rank's calls, and runs blocking ones
  bool is_in_call_ = false;
  Time step_begin_{};
  bool has_moved_ = false;  // true if something has moved since the step began
};

// The options with the links of the installed machine: rank r is on its r-th device. Without a
// machine they are unchanged. Every group of threads that may run in slow motion needs this. Throws
// Error{Usage} unless the machine has one device for each rank.
comm::ThreadGroupOptions with_simulated_links(int world_size,
                                              comm::ThreadGroupOptions options = {});

}  // namespace lockstep::slow_motion
