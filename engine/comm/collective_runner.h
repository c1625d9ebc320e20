// Moves the data of a collective that all ranks have agreed on: by its plan, or in one pass where
// ranks share memory; on CUDA by what is enqueued on the devices.
#pragma once

#include <span>

#include "engine/comm/collective_call.h"
#include "engine/comm/plan_executor.h"
#include "engine/comm/program_cache.h"

namespace lockstep::comm {

class CollectiveRunner {
 public:
  explicit CollectiveRunner(Transport& transport) : transport_(transport), executor_(transport) {}

  // Inside the transport's data phase. memory: CallHeader::memory of every rank. Returns the bytes
  // that this rank sent.
  std::size_t run(const CollectiveCall& call, std::span<void* const> memory);

 private:
  std::size_t move_on_devices(const CollectiveCall& call);
  std::size_t all_reduce(const CollectiveCall& call, std::span<void* const> memory);
  std::size_t all_gather(const CollectiveCall& call);
  std::size_t reduce_scatter(const CollectiveCall& call);
  std::size_t run_plan(const CallHeader& header, TensorView buffer, const Reduction& reduction);
  const RankProgram& program_of(const CallHeader& header, std::size_t num_elements);

  Transport& transport_;
  PlanExecutor executor_;
  ProgramCache<RankProgram> programs_;
};

}  // namespace lockstep::comm
