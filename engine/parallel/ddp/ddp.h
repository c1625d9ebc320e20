// DistributedDataParallel: every rank trains its own copy of the model on its shard of the batch;
// gradients are averaged while backward runs, so all copies stay equal.
//
//   construction   ranks agree that the models match; parameters and buffers come from rank 0
//   forward        plain; buffers (running statistics) follow rank 0 (packed_buffers.h)
//   backward       GradReducer averages gradients, bucket by bucket
//   optimizer      every rank makes the same step
//
// A rank's loss is a mean over its own shard, so equal shards give the mean over the whole batch;
// unequal ones do not: weight each rank's loss by rows * world_size / global rows, as `lockstep
// train` does, or drop the last batch (BatchOptions::drop_last).
// Source: torch/nn/parallel/distributed.py.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/thread_context.h"
#include "engine/nn/module.h"
#include "engine/parallel/ddp/grad_reducer.h"
#include "engine/parallel/ddp/packed_buffers.h"

namespace lockstep::parallel {

// Before ranks train together: their models match, and hold the same values.
//
// Compares the number of parameters, then their shapes, dtypes and whether they require gradients,
// over all ranks; then the same for buffers. Every rank reaches the same verdict: Error{Comm} that
// names the first rank that differs from rank 0, and the first parameter (by rank 0's name).
// Afterwards every rank's parameters and buffers hold rank 0's values.
void broadcast_model(const nn::Module& module, comm::Communicator& communicator);

// Every rank's parameters and buffers become the source's. REQUIRES: the models match.
void broadcast_values(const nn::Module& module, comm::Communicator& communicator, int source);

// The calling thread's context for these rows of a rank. Unless a DataLoader has said where they
// lie in the global batch, the ranks have shards of equal size.
ThreadContext context_of_rows(const Tensor& rows, int rank);

class Join;

struct DdpOptions {
  // A bucket takes parameters until their gradients fill so many MiB (PyTorch's bucket_cap_mb). Not
  // given: the reducer's limits, 1 MiB for the first bucket and 25 MiB for the others.
  std::optional<double> bucket_mib = {};
  GradReducerOptions reducer = {};
  // Says if buffers are broadcast from rank 0 before each synchronised forward pass in training.
  enum class Buffers { broadcast, keep } buffers = Buffers::broadcast;
  // Says what becomes of a parameter that gets no gradient. It replaces reducer.unused.
  Unused unused = Unused::error;

  // With bucket_mib as its limit. Throws Error{Usage} unless that is positive.
  GradReducerOptions reducer_options() const;
};

class Ddp final : public nn::ModuleOf<Ddp> {
 public:
  // Throws Error{Usage} when no parameter requires a gradient or ranks that are threads share a
  // model, and Error{Comm}, with the same message on every rank, naming the first rank and
  // parameter that differ from rank 0's. The module's buffers become others, side by side in one
  // memory, unless they are to be kept. REQUIRES: the communicator outlives this.
  Ddp(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
      const DdpOptions& options = {});
  Ddp(const Ddp&) = default;
  ~Ddp() override;

  // Throws Error{State} for a parameter that was frozen, unfrozen or replaced since it was wrapped.
  Variable forward(const Variable& input) override;

  // Has the hook exchange the buckets from now on. Every rank registers the same. Throws
  // Error{Usage} where there is one already.
  void register_comm_hook(std::shared_ptr<CommHook> hook) {
    reducer_->register_hook(std::move(hook));
  }

  // While one of these lives, gradients add up locally and nothing is all-reduced. Forward and
  // backward both belong inside: a backward pass alone is Error{State}.
  class NoSync {
   public:
    explicit NoSync(GradReducer& reducer, bool applies = true)
        : reducer_(reducer), saved_(reducer.is_synchronizing()) {
      if (applies) reducer_.set_synchronizing(false);
    }
    ~NoSync() { reducer_.set_synchronizing(saved_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    GradReducer& reducer_;
    bool saved_;
  };
  // With false it changes nothing: auto no_sync = ddp.no_sync(!is_last);
  [[nodiscard]] NoSync no_sync(bool applies = true) { return NoSync(*reducer_, applies); }

  const std::shared_ptr<nn::Module>& module() const { return children()[0].second; }
  const GradReducer& reducer() const { return *reducer_; }

  std::string type_name() const override { return "DistributedDataParallel"; }

 private:
  friend class Join;  // join.h

  void require_same_parameters() const;
  // In training, and unless they are to be kept: every rank's buffers become the source's.
  void broadcast_buffers(int source);

  comm::Communicator* communicator_;
  int rank_;
  DdpOptions options_;
  std::shared_ptr<GradReducer> reducer_;
  std::vector<std::pair<Variable, bool>> wrapped_;  // with requires_grad at that time
  PackedBuffers buffers_;
  std::function<int()> meet_;  // Join::begin_step, while it runs
};

}  // namespace lockstep::parallel
