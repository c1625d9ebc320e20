// The project's own communicator: a plan × a transport.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/comm/async_calls.h"
#include "engine/comm/call_numbers.h"
#include "engine/comm/collective_runner.h"
#include "engine/comm/transport/link/link_model.h"

namespace lockstep::comm {

class PlanCommunicator final : public Communicator {
 public:
  // slices: of the thread that runs asynchronous calls; prompt where waiting for messages costs no
  // CPU (transport/link), since a thread that spins would take the cores that compute.
  explicit PlanCommunicator(std::unique_ptr<Transport> transport,
                            runtime::Worker::Slices slices = runtime::Worker::Slices::ordinary);
  // Finishes asynchronous calls, then leaves the group.
  ~PlanCommunicator() override;

  int rank() const override { return transport_->rank(); }
  int world_size() const override { return transport_->world_size(); }
  std::string description() const override;
  std::string_view transport() const override { return transport_->name(); }
  void abort(const std::string& why) override;
  plan::AllReducePlan plan_for(std::size_t num_elements) const override;

 private:
  Work submit(CollectiveCall call, Launch launch) override;

  plan::AllReducePlan automatic_plan(std::size_t num_elements) const;
  void note(const CollectiveCall& call, Launch launch) const;
  void run(const CollectiveCall& call);
  void compare_calls(const CallHeader& mine);
  // Returns the bytes that this rank sent.
  std::size_t run_point_to_point(const CollectiveCall& call);

  std::shared_ptr<Transport> transport_;
  CollectiveRunner runner_;
  CallNumbers numbers_;
  std::vector<void*> memory_;  // of each rank, in the current collective
  AsyncCalls async_;           // the last member, so that its thread ends first
};

// Over the transport, or where links are modelled over the transport behind those.
std::unique_ptr<PlanCommunicator> make_plan_communicator(std::unique_ptr<Transport> transport,
                                                         std::unique_ptr<LinkModel> links);

}  // namespace lockstep::comm
