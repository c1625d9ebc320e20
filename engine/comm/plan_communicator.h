// The project's own communicator: a plan × a transport.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/comm/async_work.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/plan_executor.h"
#include "engine/comm/transport/link/link_spec.h"
#include "engine/runtime/worker.h"

namespace lockstep::comm {

class PlanCommunicator final : public Communicator {
 public:
  // slices: of the thread that runs asynchronous calls; prompt where waiting for messages costs no
  // CPU (transport/link), since a thread that spins would take the cores that compute.
  explicit PlanCommunicator(std::unique_ptr<Transport> transport,
                            runtime::Worker::Slices slices = runtime::Worker::Slices::ordinary);
  // Finishes asynchronous calls, then leaves the group.
  ~PlanCommunicator() override = default;

  int rank() const override { return transport_->rank(); }
  int world_size() const override { return transport_->world_size(); }
  std::string description() const override;
  void abort(const std::string& why) override;
  plan::AllReducePlan plan_for(std::size_t num_elements) const override;

 private:
  Work submit(CollectiveCall call, Launch launch) override;

  plan::AllReducePlan automatic_plan(std::size_t num_elements) const;
  void number(CallHeader& header, int peer);
  void run(const CollectiveCall& call);
  void compare_calls(const CallHeader& mine);
  std::size_t copy_alone(const CollectiveCall& call);
  // These return the bytes that this rank sent.
  std::size_t move_on_devices(const CollectiveCall& call);
  std::size_t move_data(const CollectiveCall& call);
  std::size_t all_reduce_data(const CollectiveCall& call);
  std::size_t all_gather_data(const CollectiveCall& call);
  std::size_t reduce_scatter_data(const CollectiveCall& call);
  std::size_t run_plan(const CallHeader& header, TensorView buffer, const Reduction& reduction);
  std::size_t run_point_to_point(const CollectiveCall& call);
  const RankProgram& program_of(const CallHeader& header, std::size_t num_elements);

  std::shared_ptr<Transport> transport_;
  PlanExecutor executor_;
  std::uint64_t num_collectives_ = 0;
  std::vector<std::uint64_t> num_sent_;      // to each rank
  std::vector<std::uint64_t> num_received_;  // from each rank
  std::vector<void*> memory_;                // of each rank, in the current collective
  using ProgramKey = std::tuple<Operation, plan::AllReducePlan, int, std::size_t>;
  std::map<ProgramKey, RankProgram> programs_;
  std::shared_ptr<AsyncWork> last_async_;
  runtime::Worker worker_;  // runs asynchronous calls; the last member, so that it ends first
};

// Over the transport, or where a link is named over the transport behind that link.
std::unique_ptr<PlanCommunicator> make_plan_communicator(std::unique_ptr<Transport> transport,
                                                         const std::optional<LinkSpec>& link);

}  // namespace lockstep::comm
