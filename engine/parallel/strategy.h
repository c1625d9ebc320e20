// A way to train one model on one device or on several ranks, as a training loop sees it:
//
//   optim::Sgd optimizer = ... strategy.groups(weight_decay) ...
//   for each batch, of which the rank takes shard() of num_shards():
//     optimizer.zero_grad();
//     strategy.add_gradients(batch, {.weight = strategy.num_averaged() / num_global_rows});
//     strategy.clip_gradients(max_norm);
//     optimizer.step();
//   strategy.state_dict()     the whole model, on rank 0
//
// The loop asks for no mode. strategies.h makes those of this folder; a mode of your own derives
// from Strategy and overrides add_gradients(), and the rest where a rank holds a part of the model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/data/data_loader.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/bitwise/micro_shards.h"
#include "engine/parallel/sharded/sharded.h"
#include "engine/plan/scatter.h"

namespace lockstep::parallel {

// The cross-entropy summed over all labels. It uses up the logits.
Variable sum_cross_entropy(const Variable& logits, const Tensor& labels);

// The loss of a batch: weight * sum, in so many micro-batches, one after the other.
struct BatchLoss {
  SumLoss sum = sum_cross_entropy;
  double weight = 1;
  std::size_t accumulate = 1;
};

// Add the gradients of these rows of a batch, or of all micro-batches in turn, to the parameters'.
// They return the sum of the loss over the rows.
Tensor add_row_gradients(nn::Module& model, const data::Batch& batch, const BatchLoss& loss,
                         const plan::ScatterPart& rows);
Tensor add_batch_gradients(nn::Module& model, const data::Batch& batch, const BatchLoss& loss);

class Strategy {
 public:
  enum class Rows { own, all };      // a batch's: the rank's share, or the whole on every rank
  enum class Holds { whole, part };  // what a rank has of the model
  struct Setup {
    std::shared_ptr<nn::Module> module;  // holds the rank's parameters and buffers
    std::vector<Device> devices = {};    // the rank's; the first has the parameters. Empty: theirs
    comm::Communicator* communicator = nullptr;  // to ranks of other threads or processes
    // Those of the communicator, if there is one.
    int rank = 0;
    std::size_t num_ranks = 1;
    Rows rows = Rows::own;       // rows that the rank takes
    Rows loss_rows = Rows::own;  // rows whose loss add_gradients() returns
    Holds holds = Holds::whole;
    std::size_t num_parts =
        0;  // parts in which a batch is computed; 0: one for each device or rank
  };

  // REQUIRES: the communicator outlives this.
  explicit Strategy(Setup setup);
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  const std::shared_ptr<nn::Module>& module() const { return setup_.module; }
  const std::vector<Device>& devices() const { return setup_.devices; }
  comm::Communicator* communicator() const { return setup_.communicator; }
  int rank() const { return setup_.rank; }
  std::size_t num_ranks() const { return setup_.num_ranks; }
  std::size_t num_parts() const { return setup_.num_parts; }
  bool is_in_parts() const { return setup_.holds == Holds::part; }
  bool is_loss_global() const { return setup_.loss_rows == Rows::all; }

  // --- rows: a batch is cut into shards, of which the rank takes one
  std::size_t num_shards() const { return setup_.rows == Rows::all ? 1 : setup_.num_ranks; }
  std::size_t shard() const;
  // The rows of a batch of so many that the rank takes.
  virtual plan::ScatterPart rows_of(std::size_t num_global_rows) const;
  // The gradients of so many ranks are averaged: weighed by this and divided by the rows of the
  // global batch, a rank's summed loss counts as its share of the mean.
  std::size_t num_averaged() const { return is_loss_global() ? 1 : setup_.num_ranks; }

  // --- a step. All ranks call these.
  // Leaves the gradients that the optimizer steps on. Returns the summed loss of the rank's rows,
  // or of all ranks': one element, where the output is, or on the CPU.
  virtual Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) = 0;
  // As optim::clip_grad_norm_on_device(), by the norm of the whole model's gradients.
  virtual Tensor clip_gradients(double max_norm);
  // The model's output; undefined on a rank that does not get it.
  virtual Variable evaluate(const Tensor& x);

  // --- what the optimizer steps on: whole parameters, or this rank's pieces of them
  virtual std::vector<ShardPiece> pieces() const;
  // The same in the order of an optimizer's parameters.
  std::vector<ShardPiece> pieces(const optim::Optimizer& optimizer) const;
  using Decays = Sharded::Decays;
  virtual std::vector<optim::ParameterGroup> groups(double weight_decay,
                                                    Decays decays = Decays::all) const;
  // A piece of a tensor that is like the whole parameter.
  virtual Tensor cut(const ShardPiece& piece, const Tensor& whole) const;
  // Makes whole tensors of all ranks' tensors for their pieces, and visits them: on rank 0 each
  // parameter's, elsewhere all or none. Those of a parameter that two ranks hold come twice. All
  // ranks call it.
  using OfPiece = Sharded::OfPiece;
  using Visit = Sharded::Visit;
  virtual void gather(const OfPiece& of_piece, const Visit& visit) const;

  // The whole model's weights as copies on the CPU, on rank 0; elsewhere they may be empty. All
  // ranks call it.
  virtual nn::StateDict state_dict() const;
  // The order in which buckets hold the parameters, for a run that goes on; empty without buckets.
  virtual std::vector<std::size_t> bucket_order() const { return {}; }

 private:
  Setup setup_;
};

}  // namespace lockstep::parallel
