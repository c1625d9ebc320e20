// Parameters that a backward pass does not reach, under DDP's find_unused_parameters.
//
// A rank knows from the output's graph which of its parameters will get no gradient, and counts
// them at once, so that their buckets need not wait. Afterwards the ranks tell each other which
// they used: a gradient that some rank computed is the average for all, and one that nobody
// computed stays what it was.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/parallel/ddp/grad_buckets.h"

namespace lockstep::parallel {

// Says what becomes of a parameter that gets no gradient in a backward pass.
enum class Unused {
  error,     // Error{State} that names it
  find,      // each forward pass looks for them (PyTorch's find_unused_parameters)
  as_first,  // those of the first step are those of every step (PyTorch's static_graph)
};

class UnusedParameters {
 public:
  // REQUIRES: the buckets outlive it.
  UnusedParameters(Unused policy, GradBuckets& buckets);

  // After a forward pass: those that the output does not reach. After several before one backward
  // pass: those that no output reaches.
  void look_at(const Variable& output);
  // The gradient of a parameter is ready, in a pass that synchronises. Throws Error{State} for one
  // that was taken for unused.
  void add_used(std::size_t parameter);
  // The same in a pass of no_sync.
  void add_used_locally(std::size_t parameter);

  // A backward pass that synchronises: those to be counted at its beginning.
  const std::vector<std::size_t>& begin_backward();
  // All buckets have been reduced. Every rank calls it, one that has no rows too.
  void end_backward(comm::Communicator& communicator);
  // For a rank that has no rows (join.h).
  void answer(comm::Communicator& communicator);

 private:
  bool knows_all() const { return policy_ == Unused::as_first && num_steps_ > 0; }
  std::vector<std::int64_t> count_users(const std::vector<std::int64_t>& mine,
                                        comm::Communicator& communicator) const;

  Unused policy_;
  GradBuckets& buckets_;
  bool has_looked_ = false;          // since the last backward pass
  std::vector<std::size_t> unused_;  // unused in the coming backward pass, or the running one
  std::vector<std::int64_t> used_;   // 1 by parameter: used since the last synchronised pass
  std::vector<std::int64_t> users_;  // each parameter's users among ranks in the last step
  std::vector<Tensor> kept_;         // the gradients that those had before
  std::size_t num_steps_ = 0;
};

}  // namespace lockstep::parallel
