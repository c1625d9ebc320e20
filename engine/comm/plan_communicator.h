// The project's own communicator: runs collectives by their plans, among the ranks of a Group.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/link.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {

class PlanCommunicator final : public Communicator {
 public:
  // links: modelled links, or nullptr. All ranks of the group must give the same.
  explicit PlanCommunicator(std::unique_ptr<Group> group,
                            std::unique_ptr<LinkModel> links = nullptr);
  // Finishes asynchronous calls, then leaves the group.
  ~PlanCommunicator() override;

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  std::string description() const override;
  std::string_view transport() const override { return shape_.name; }
  void abort(const std::string& why) override;
  plan::AllReducePlan plan_for(std::size_t num_elements) const override;

 private:
  Work submit(CollectiveCall call, Launch launch) override;

  plan::AllReducePlan automatic_plan(std::size_t num_elements) const;
  void tell(const CollectiveCall& call, Launch launch, trace::Moment moment) const;
  void run(const CollectiveCall& call);
  void run_collective(const CollectiveCall& call);
  void send(const CollectiveCall& call);
  void receive(const CollectiveCall& call);
  void compare_calls(const CallHeader& mine);
  // These return the bytes that this rank sent.
  std::size_t move_data(const CollectiveCall& call);
  std::size_t move_by_plan(const CollectiveCall& call);
  std::size_t all_reduce_in_passes(const CollectiveCall& call);
  std::size_t run_plan(const CollectiveCall& call, TensorView buffer);
  const plan::RankSchedule& schedule_of(const CallHeader& header, std::size_t num_elements);

  using ScheduleKey = std::tuple<Operation, plan::AllReducePlan, int, std::size_t>;

  std::unique_ptr<Group> group_;
  GroupShape shape_;  // with modelled links
  std::optional<LinkClock> clock_;
  CallNumbers numbers_;
  std::vector<void*> memory_;  // of each rank, in the current collective
  Tensor whole_;               // of a reduce_scatter: a copy, which outlives an error
  std::map<ScheduleKey, plan::RankSchedule> schedules_;
  AsyncCalls async_;  // the last member, so that its thread ends first
};

}  // namespace lockstep::comm
