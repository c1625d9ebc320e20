// Ranks that have unequally many batches: one that has no more answers the others' collectives with
// zeros, until all are done.
//
//   parallel::join(ddp, [&] {
//     while (const auto batch = loader.next()) { ... ddp(x) ... backward() ... step() ... }
//   });
//
// At every step the ranks tell each other who still has rows. At the end all take the weights and
// buffers of the rank that took part in the last step (of several, the highest).
#pragma once

#include <functional>

#include "engine/parallel/ddp/ddp.h"

namespace lockstep::parallel {

// The divisor of the summed gradients.
enum class JoinDivisor {
  world_size,    // all ranks: those without rows count as zeros (PyTorch's default)
  active_ranks,  // those that have rows in this step
};

// Every rank calls it, with the same divisor. steps: this rank's training loop, which calls ddp
// once in each step, with gradients. Throws what it throws, and Error{State} when some ranks are in
// no_sync and others are not.
// Source: PyTorch's Join, DistributedDataParallel.join.
void join(Ddp& ddp, const std::function<void()>& steps,
          JoinDivisor divisor = JoinDivisor::world_size);

// The running join(), as Ddp and its reducer meet it.
class Join {
 public:
  Join(Ddp& ddp, JoinDivisor divisor);
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // A step of this rank. Returns the rank whose buffers all take.
  int begin_step();
  // Answers the other ranks' steps until there are none, then takes the last one's model.
  void answer();

 private:
  struct Round {
    int num_active = 0;
    int source = 0;  // the highest of the active ranks
    bool synchronizes = false;
  };
  // mine: 0 for a rank without rows, 1 in no_sync, else 2.
  Round meet(int mine);

  Ddp& ddp_;
  JoinDivisor divisor_;
  int last_source_ = 0;
};

}  // namespace lockstep::parallel
