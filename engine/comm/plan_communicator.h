// The project's own communicator: collectives by their plans, among the ranks of a Group.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/async_calls.h"
#include "engine/comm/group.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {

class Transport;

class PlanCommunicator final : public Communicator {
 public:
  explicit PlanCommunicator(std::unique_ptr<Group> group);
  // Ranks that exchange messages (message_group.h). links: modelled ones; may be none.
  explicit PlanCommunicator(std::unique_ptr<Transport> transport,
                            std::unique_ptr<LinkModel> links = nullptr);
  // Finishes asynchronous calls, then leaves the group.
  ~PlanCommunicator() override;

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  std::string description() const override;
  std::string_view transport() const override { return group_->shape().name; }
  void abort(const std::string& why) override;
  plan::AllReducePlan plan_for(std::size_t num_elements) const override;

 private:
  Work submit(CollectiveCall call, Launch launch) override;

  plan::AllReducePlan automatic_plan(std::size_t num_elements) const;
  void tell(const CollectiveCall& call, Launch launch, trace::Moment moment) const;
  void run(const CollectiveCall& call);
  void compare_calls(const CallHeader& mine);

  std::shared_ptr<Group> group_;
  CallNumbers numbers_;
  std::vector<void*> memory_;  // of each rank, in the current collective
  AsyncCalls async_;           // the last member, so that its thread ends first
};

}  // namespace lockstep::comm
