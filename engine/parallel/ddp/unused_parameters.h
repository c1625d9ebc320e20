// Parameters that a backward pass does not reach, under DDP's find_unused_parameters: what the
// reducer tells about a pass, and asks.
#pragma once

#include <cstdint>
#include <memory>
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
  virtual ~UnusedParameters() = default;

  // After a forward pass: those that the output does not reach. After several before one backward
  // pass: those that no output reaches.
  virtual void look_at(const Variable& output) = 0;
  // The gradient of a parameter is ready, in a pass that synchronises. Throws Error{State} for one
  // that was taken for unused.
  virtual void add_used(std::size_t parameter) = 0;
  // The same in a pass of no_sync.
  virtual void add_used_locally(std::size_t parameter) = 0;

  // A backward pass that synchronises: those to be counted at its beginning.
  virtual const std::vector<std::size_t>& begin_backward() = 0;
  // All buckets have been reduced. Every rank calls it, one that has no rows too.
  virtual void end_backward(comm::Communicator& communicator) = 0;
  // For a rank that has no rows (join.h).
  virtual void answer(comm::Communicator& communicator) = 0;
};

// nullptr for Unused::error. REQUIRES: the buckets outlive it.
std::unique_ptr<UnusedParameters> find_unused_parameters(Unused policy, GradBuckets& buckets);

}  // namespace lockstep::parallel
