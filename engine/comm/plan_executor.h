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
  struct Sent {
    int to_rank = 0;
    Ticket ticket = 0;  // of the last piece
    ProgramSend::From from = ProgramSend::From::buffer;
  };

  // How many rounds a step takes: the pieces of its longest transfer.
  std::size_t pieces_of(const ProgramStep& step) const;
  // Empty behind the last piece. REQUIRES: the chunk is not empty.
  plan::Chunk piece_of(plan::Chunk chunk, std::size_t piece) const;
  static void stage(const ProgramStep& step, TensorView buffer, std::byte* staging);
  void do_send(const ProgramSend& send, std::size_t number, TensorView buffer,
               const std::byte* staging);
  void do_write(const ProgramWrite& write, std::size_t number, TensorView buffer,
                const Reduction& reduction);
  void wait_sent(std::size_t send);

  Transport& transport_;
  std::vector<Sent> sent_;                // by number; kept between calls for its memory
  std::vector<ConstTensorView> sources_;  // likewise
  std::size_t piece_elements_ = 1;        // of the largest message
};

}  // namespace lockstep::comm
