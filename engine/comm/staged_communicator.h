// A communicator for tensors that its links do not reach: they are carried over memory that the
// links do reach. So ranks that are processes and share one GPU reduce over shared memory or TCP
// (device -> host -> other ranks -> host -> device), and NCCL, which knows GPUs only, carries the
// few host tensors that DDP sends around it.
//
//   tensors where the inner communicator is   passed on as they are
//   all others                                copied there, blocking, and copied back
//
// A staged call is done when it returns, also an asynchronous one: it does not overlap with
// anything. That is right for checking results, and for small tensors.
#pragma once

#include <memory>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

class StagedCommunicator final : public Communicator {
 public:
  // reached: where inner's tensors are; every rank names a device of the same type.
  StagedCommunicator(std::unique_ptr<Communicator> inner, Device reached);

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  // "own: auto over shm, staged in host memory"; of NCCL, which moves what matters itself, its own.
  std::string description() const override;
  std::string_view transport() const override { return inner_->transport(); }
  void abort(const std::string& why) override { inner_->abort(why); }
  plan::AllReducePlan plan_for(std::size_t num_elements) const override;

 private:
  Work submit(CollectiveCall call, Launch launch) override;
  Work submit_together(std::vector<CollectiveCall> calls, Launch launch) override;
  bool reaches(const CollectiveCall& call) const;
  Work run(const CollectiveCall& call, const Tensor& input, const Tensor& output, Launch launch);
  Work run_together(const CollectiveCall& call, std::span<const Tensor> buffers, Launch launch);

  std::unique_ptr<Communicator> inner_;
  Device reached_;
};

}  // namespace lockstep::comm
