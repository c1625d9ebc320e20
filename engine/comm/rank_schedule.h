// A plan as one rank sees it: per step, the chunks that it sends and those that it receives. A
// schedule is worked out once per kind of call and kept, so that running it decides nothing.
//
// The collectives around a plan are here too: scaling what is averaged, the copies of all_gather
// and reduce_scatter. How a chunk gets from one rank to another is the group's affair
// (thread_group.cpp, message_group.cpp).
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/reduce.h"

namespace lockstep::comm {

struct RankSchedule {
  struct Send {
    int to_rank = 0;
    plan::Chunk chunk;
  };
  // A peer that reads this rank's memory in a step.
  struct Reader {
    int rank = 0;
    std::size_t step = 0;
  };
  // How a step overwrites chunks that it also sends.
  enum class Overwrites { nothing, whole_chunks, parts_of_chunks };
  struct Step {
    std::vector<Send> sends;            // by rising offset, so that a pair agrees on the order
    std::vector<plan::Write> receives;  // by rising offset
    Overwrites overwrites = Overwrites::nothing;
    // Peers that may still read what this step overwrites. Only ranks that lend their memory wait
    // for them.
    std::vector<Reader> wait_for;
  };

  std::vector<Step> steps;       // those of the plan; some are empty for this rank
  std::vector<Reader> wait_for;  // at the end
  std::size_t num_elements_sent = 0;
};

// Throws Error{Usage} when the plan is not valid or the rank is outside it.
RankSchedule rank_schedule(const plan::CollectivePlan& plan, int rank);

// Computes out = the combination of `mine` with what the peers of a receive sent, in the order of
// ranks. source_of(peer): the peer's values.
// Memory: out may be mine.
void receive_chunk(const plan::Write& write, int rank, const Reduction& reduction,
                   const std::function<const void*(int peer)>& source_of, TensorView mine,
                   TensorView out);

// Runs the collectives of one rank by their plans.
class PlanRunner {
 public:
  PlanRunner(int rank, int world_size, std::vector<int> hosts)
      : rank_(rank), world_size_(world_size), hosts_(std::move(hosts)) {}

  // Moves a chunk of every step: what a group does.
  using RunSchedule =
      std::function<void(const RankSchedule&, TensorView buffer, const Reduction& reduction)>;

  // Carries out a call. pass_bytes: TransportShape::pass_bytes. Returns the bytes that this rank
  // sent. REQUIRES: all ranks called the same.
  std::size_t run(const CollectiveCall& call, std::size_t pass_bytes, const RunSchedule& run);

  // The schedule of a call with num_elements in the whole buffer. It stays until the next call.
  const RankSchedule& schedule_of(const CallHeader& header, std::size_t num_elements);

 private:
  using Key = std::tuple<Operation, plan::AllReducePlan, int, std::size_t>;

  std::size_t all_reduce(const CollectiveCall& call, std::size_t pass_bytes,
                         const RunSchedule& run);
  std::size_t all_gather(const CollectiveCall& call, const RunSchedule& run);
  std::size_t reduce_scatter(const CollectiveCall& call, const RunSchedule& run);
  std::size_t run_plan(const CallHeader& header, TensorView buffer, const Reduction& reduction,
                       const RunSchedule& run);

  int rank_;
  int world_size_;
  std::vector<int> hosts_;
  std::map<Key, RankSchedule> schedules_;
};

}  // namespace lockstep::comm
