// The Communicator over NCCL; see nccl_group.h for what it promises.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/nccl/nccl_comm.h"
#include "engine/comm/nccl/nccl_link.h"
#include "engine/comm/nccl/nccl_meeting.h"
#include "engine/comm/nccl/nccl_watch.h"
#include "engine/comm/nccl/nccl_work.h"

namespace lockstep::comm::nccl {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclGroupOptions& options, const Meeting& meeting);
  // Waits until what is enqueued has ended, or failed; then leaves the group.
  ~NcclCommunicator() override;

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  std::string description() const override { return description_; }
  std::string_view transport() const override { return "nccl"; }
  void abort(const std::string& why) override;
  plan::AllReducePlan plan_for(std::size_t) const override {
    return plan::AllReducePlan::automatic;
  }

 private:
  Work submit(CollectiveCall call, Launch launch) override;
  Work submit_together(std::vector<CollectiveCall> calls, Launch launch) override;
  Work run(std::span<CollectiveCall> calls, Launch launch);
  void require_here(const CollectiveCall& call) const;
  Work run_collectives(std::span<CollectiveCall> calls, Launch launch);
  void enqueue(std::span<const CollectiveCall> calls);
  void barrier(CollectiveCall& call);
  Work run_message(CollectiveCall& call, Launch launch);
  Link& link_to(int peer, Link::End end);

  NcclGroupOptions options_;
  std::string description_;
  runtime::LogicalDevice& device_;
  std::shared_ptr<Watch> watch_;
  std::shared_ptr<Comm> comm_;
  Tensor barrier_value_;
  bool has_async_work_ = false;  // not followed by a blocking call
  CallNumbers numbers_;
  std::map<std::pair<int, Link::End>, std::unique_ptr<Link>> links_;
};

}  // namespace lockstep::comm::nccl
