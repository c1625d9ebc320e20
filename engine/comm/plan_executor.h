// Runs a plan for one rank over a transport.
#pragma once

#include <vector>

#include "engine/comm/rank_program.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm {

// What `add` in a plan means, and on which stream's device it is computed.
struct Reduction {
  runtime::Stream& stream;
  ReduceOp op = ReduceOp::sum;
};

class PlanExecutor {
 public:
  explicit PlanExecutor(Transport& transport) : transport_(transport) {}

  // Carries out the program on this rank's buffer, inside the transport's data phase. When it
  // returns, no peer reads the buffer any more.
  // REQUIRES: the buffer has the plan's number of elements.
  void run(const RankProgram& program, TensorView buffer, const Reduction& reduction);

 private:
  void do_sends(const ProgramStep& step, TensorView buffer, std::byte* staging);
  void do_write(const ProgramWrite& write, TensorView buffer, const Reduction& reduction);
  void wait_sent(std::size_t send);

  struct Sent {
    int to_rank;
    Ticket ticket;
    ProgramSend::From from;
  };

  Transport& transport_;
  std::vector<Sent> sent_;                // by number; kept between calls for its memory
  std::vector<ConstTensorView> sources_;  // likewise
};

}  // namespace lockstep::comm
