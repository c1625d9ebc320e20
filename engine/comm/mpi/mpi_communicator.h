// The Communicator over an MPI library; see mpi_group.h for what it promises.
#pragma once

#include <string>

#include "engine/comm/async_calls.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/mpi/mpi_membership.h"
#include "engine/comm/mpi/mpi_watchdog.h"
#include "engine/runtime/threads.h"

namespace lockstep::comm {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiSession& session, double timeout_seconds);
  // Finishes asynchronous calls, then leaves the group.
  ~MpiCommunicator() override = default;

  int rank() const override { return session_.rank(); }
  int world_size() const override { return session_.world_size(); }
  std::string description() const override { return "mpi: " + session_.library(); }
  std::string_view transport() const override { return "mpi"; }
  void abort(const std::string& why) override;
  plan::AllReducePlan plan_for(std::size_t) const override {
    return plan::AllReducePlan::automatic;
  }

 private:
  Work submit(CollectiveCall call, Launch launch) override;
  void run(const CollectiveCall& call);
  void run_collective(const CollectiveCall& call);
  void send_message(const CollectiveCall& call);
  void receive_message(const CollectiveCall& call);
  void receive(std::byte* data, std::size_t num_bytes, int tag, const CollectiveCall& call);

  MpiSession& session_;
  MpiMembership membership_;
  CallNumbers numbers_;
  MpiWatchdog watchdog_{end_job};
  // The last members, so that they end first.
  runtime::Worker sends_{"mpi send"};  // lets messages that were sent go on
  AsyncCalls async_{"mpi comm"};
};

}  // namespace lockstep::comm
