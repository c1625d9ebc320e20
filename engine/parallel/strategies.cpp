#include "engine/parallel/strategies.h"

#include <algorithm>
#include <utility>

#include "engine/core/thread_context.h"
#include "engine/parallel/clip_over_ranks.h"
#include "engine/parallel/ddp/replica_group.h"
#include "engine/parallel/tensor_parallel.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/counters.h"
#include "kernels/calls.h"

namespace lockstep::parallel {
namespace {

using Setup = Strategy::Setup;

// Calls the model, which may be a wrapper around the one that has the parameters.
class Plain final : public Strategy {
 public:
  Plain(Setup setup, std::shared_ptr<nn::Module> wrapped)
      : Strategy(std::move(setup)), wrapped_(std::move(wrapped)) {}

  Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) override {
    return add_batch_gradients(*wrapped_, batch, loss);
  }

 private:
  std::shared_ptr<nn::Module> wrapped_;
};

// Ranks average their gradients once a step: behind the last micro-batch.
template <typename Wrapper, typename Scope>
Tensor add_with_one_exchange(Wrapper& wrapper, const data::Batch& batch, const BatchLoss& loss,
                             const std::vector<plan::ScatterPart>& micro_batches,
                             const Scope& without_exchange) {
  Tensor sum;
  for (const plan::ScatterPart& rows : micro_batches) {
    const bool is_last = &rows == &micro_batches.back();
    const auto scope = without_exchange(!is_last);
    const Tensor of_rows = add_row_gradients(wrapper, batch, loss, rows);
    sum = sum.defined() ? sum.add_(of_rows) : of_rows;
  }
  return sum;
}

class OfDdp final : public Strategy {
 public:
  OfDdp(const std::shared_ptr<nn::Module>& model, comm::Communicator& communicator,
        const DdpOptions& options)
      : Strategy({.module = model, .communicator = &communicator}),
        ddp_(model, communicator, options) {}

  Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) override {
    return add_with_one_exchange(ddp_, batch, loss,
                                 plan::scatter_plan(batch.labels.size(0), loss.accumulate).parts,
                                 [&](bool applies) { return ddp_.no_sync(applies); });
  }

  // Empty before the first step has settled it.
  std::vector<std::size_t> bucket_order() const override {
    std::vector<std::size_t> order;
    if (!ddp_.reducer().was_rebuilt()) return order;
    for (const plan::Bucket& bucket : ddp_.reducer().bucket_plan().buckets) {
      for (const std::size_t parameter : bucket.parameters()) order.push_back(parameter);
    }
    return order;
  }

 private:
  Ddp ddp_;
};

class OfShards final : public Strategy {
 public:
  OfShards(const std::shared_ptr<nn::Module>& model, comm::Communicator& communicator,
           ShardDepth depth)
      : Strategy({.module = model, .communicator = &communicator, .holds = Holds::part}),
        sharded_(model, communicator, depth) {}

  // Ranks talk to each other in every pass, so all of them make as many passes, some without rows,
  // whatever their share of a smaller batch is.
  Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) override {
    const std::size_t num_rows = batch.labels.size(0);
    std::vector<plan::ScatterPart> parts = plan::scatter_plan(num_rows, loss.accumulate).parts;
    while (parts.size() < loss.accumulate) parts.push_back({parts.size(), num_rows, 0});
    return add_with_one_exchange(sharded_, batch, loss, parts,
                                 [&](bool applies) { return sharded_.no_step(applies); });
  }
  Tensor clip_gradients(double max_norm) override { return sharded_.clip_grad_norm(max_norm); }
  // At depth three a pass without a step gathers parameters that no step needs; at lower depths the
  // next step uses them.
  Variable evaluate(const Tensor& x) override {
    if (sharded_.depth() != ShardDepth::parameters) return Strategy::evaluate(x);
    const trace::UncountedScope beside_the_steps({rank()});
    return Strategy::evaluate(x);
  }
  std::vector<ShardPiece> pieces() const override { return sharded_.pieces(); }
  std::vector<optim::ParameterGroup> groups(double weight_decay, Decays decays) const override {
    return sharded_.groups(weight_decay, decays);
  }
  void gather(const OfPiece& of_piece, const Visit& visit) const override {
    sharded_.gather(of_piece, visit);
  }
  nn::StateDict state_dict() const override { return sharded_.state_dict(); }

 private:
  Sharded sharded_;
};

// Holds its stage's tensors alone.
class OfPipeline final : public Strategy {
 public:
  OfPipeline(std::unique_ptr<PipelineStage> stage, comm::Communicator& communicator)
      : Strategy({.module = stage->tensors(),
                  .communicator = &communicator,
                  .rows = Rows::all,
                  .loss_rows = Rows::all,
                  .holds = Holds::part,
                  .num_parts = stage->plan().num_micro_batches}),
        stage_(std::move(stage)) {}

  Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) override {
    return stage_->run_step(batch.x, batch.labels, batch.global_offset, loss.weight, loss.sum);
  }
  Tensor clip_gradients(double max_norm) override { return stage_->clip_gradients(max_norm); }
  Variable evaluate(const Tensor& x) override {
    const trace::UncountedScope beside_the_steps({rank()});
    return stage_->evaluate(x);
  }
  void gather(const OfPiece& of_piece, const Visit& visit) const override {
    PipelineStage::NamedTensors mine;
    for (const ShardPiece& piece : pieces()) {
      const Tensor tensor = of_piece(piece);
      const bool is_there = tensor.defined();
      mine.emplace_back(piece.name,
                        is_there ? tensor : Tensor::empty({0}, piece.value.dtype(), Device{}));
    }
    for (const auto& stage : stage_->gather(mine)) {
      for (const auto& [name, tensor] : stage) visit(name, tensor);
    }
  }
  nn::StateDict state_dict() const override { return stage_->gather_state(); }

 private:
  std::unique_ptr<PipelineStage> stage_;
};

class OfTensors final : public Strategy {
 public:
  OfTensors(std::shared_ptr<nn::Module> part, comm::Communicator& communicator)
      : Strategy({.module = std::move(part),
                  .communicator = &communicator,
                  .rows = Rows::all,
                  .loss_rows = Rows::all,
                  .holds = Holds::part,
                  .num_parts = 1}),
        parameters_(cut_parameters(*module())) {}

  Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) override {
    return add_batch_gradients(*module(), batch, loss);
  }
  // A parameter that every rank has counts on rank 0.
  Tensor clip_gradients(double max_norm) override {
    std::vector<Variable> counted;
    for (const CutParameter& parameter : parameters_) {
      const bool counts = rank() == 0 || parameter.kind == CutParameter::Kind::cut;
      if (counts && parameter.value.defined()) counted.push_back(parameter.value);
    }
    return clip_over_ranks(counted, module()->parameters(), max_norm, *communicator(),
                           devices()[0]);
  }
  // Every rank computes it, and rank 0 gets it.
  Variable evaluate(const Tensor& x) override {
    const trace::UncountedScope beside_the_steps({rank()});
    const Variable output = Strategy::evaluate(x);
    return rank() == 0 ? output : Variable();
  }
  std::vector<ShardPiece> pieces() const override {
    std::vector<ShardPiece> all;
    for (const CutParameter& parameter : parameters_) {
      if (parameter.value.defined()) all.push_back(piece_of(parameter));
    }
    return all;
  }
  Tensor cut(const ShardPiece& piece, const Tensor& whole) const override {
    const auto found = std::ranges::find(parameters_, piece.name, &CutParameter::name);
    return found->part_of(whole);
  }
  void gather(const OfPiece& of_piece, const Visit& visit) const override {
    for (const CutParameter& parameter : parameters_) {
      const bool is_here = parameter.value.defined();
      visit(parameter.name,
            parameter.gather(is_here ? of_piece(piece_of(parameter))
                                     : Tensor::empty(parameter.shape, dtype(), devices()[0])));
    }
  }
  nn::StateDict state_dict() const override {
    nn::StateDict state = whole_state(*module());
    for (auto& [name, tensor] : state) tensor = tensor.to(Device{}).clone();
    return state;
  }

 private:
  static ShardPiece piece_of(const CutParameter& parameter) {
    return {parameter.name, parameter.shape, 0, 0, parameter.value};
  }
  DType dtype() const { return module()->parameters()[0].dtype(); }

  std::vector<CutParameter> parameters_;
};

class Bitwise final : public Strategy {
 public:
  explicit Bitwise(Setup setup) : Strategy(std::move(setup)) {}

  plan::ScatterPart rows_of(std::size_t num_global_rows) const override {
    if (communicator() == nullptr) return Strategy::rows_of(num_global_rows);
    return plan::micro_shard_plan(num_global_rows, num_ranks()).rows_of_device(shard());
  }

  Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) override {
    const runtime::WorkSpan span(batch.x.stream(), trace::Lane::compute, trace::Category::backward,
                                 "micro-shards forward and backward");
    thread_context().first_row = batch.global_offset;
    double loss_sum = 0;
    if (communicator() != nullptr) {
      const plan::MicroShardPlan plan = plan::micro_shard_plan(batch.num_global_rows, num_ranks());
      const MicroShardResult mine =
          run_micro_shards(*module(), loss.sum, batch.x, batch.labels, plan, shard());
      loss_sum = bitwise_all_reduce(*module(), mine, *communicator());
    } else {
      loss_sum = bitwise_data_parallel(*module(), devices(), loss.sum, batch.x, batch.labels);
    }
    for (const Variable& parameter : module()->parameters()) {
      const TensorView grad = parameter.grad().view();
      batch.x.backend().scale(batch.x.stream(), {grad, loss.weight, grad});
    }
    return Tensor::from(std::vector<double>{loss_sum}, {1}, Device{});
  }
};

class Replica final : public Strategy {
 public:
  Replica(std::shared_ptr<ReplicaGroup> group, std::size_t rank)
      : Strategy({.module = std::shared_ptr<nn::Module>(group, &group->replica(rank)),
                  .devices = {group->devices()[rank]},
                  .rank = static_cast<int>(rank),
                  .num_ranks = group->size()}),
        group_(std::move(group)) {}

  Tensor add_gradients(const data::Batch& batch, const BatchLoss& loss) override {
    Tensor sum;
    group_->run_rank(static_cast<std::size_t>(rank()),
                     [&](nn::Module& replica) { sum = add_batch_gradients(replica, batch, loss); });
    return sum;
  }

 private:
  std::shared_ptr<ReplicaGroup> group_;
};

}  // namespace

std::unique_ptr<Strategy> single_device(std::shared_ptr<nn::Module> model) {
  return std::make_unique<Plain>(Setup{.module = model}, model);
}

std::unique_ptr<Strategy> data_parallel_strategy(std::shared_ptr<nn::Module> model,
                                                 const DataParallelOptions& options) {
  const auto wrapped = std::make_shared<DataParallel>(model, options);
  return std::make_unique<Plain>(
      Setup{.module = std::move(model), .devices = wrapped->options().devices}, wrapped);
}

std::unique_ptr<Strategy> ddp_strategy(std::shared_ptr<nn::Module> model,
                                       comm::Communicator& communicator,
                                       const DdpOptions& options) {
  return std::make_unique<OfDdp>(model, communicator, options);
}

std::unique_ptr<Strategy> sharded_strategy(std::shared_ptr<nn::Module> model,
                                           comm::Communicator& communicator, ShardDepth depth) {
  return std::make_unique<OfShards>(model, communicator, depth);
}

std::unique_ptr<Strategy> pipeline_strategy(const std::shared_ptr<nn::Module>& model,
                                            comm::Communicator& communicator,
                                            const PipelineOptions& options) {
  return std::make_unique<OfPipeline>(std::make_unique<PipelineStage>(model, communicator, options),
                                      communicator);
}

std::unique_ptr<Strategy> tensor_strategy(const nn::Module& model,
                                          comm::Communicator& communicator) {
  broadcast_model(model, communicator);
  return std::make_unique<OfTensors>(tensor_parallel(model, communicator), communicator);
}

std::unique_ptr<Strategy> bitwise_strategy(std::shared_ptr<nn::Module> model,
                                           const std::vector<Device>& devices) {
  return std::make_unique<Bitwise>(
      Setup{.module = std::move(model), .devices = devices, .loss_rows = Strategy::Rows::all});
}

std::unique_ptr<Strategy> bitwise_strategy(std::shared_ptr<nn::Module> model,
                                           comm::Communicator& communicator) {
  broadcast_model(*model, communicator);
  return std::make_unique<Bitwise>(Setup{
      .module = std::move(model), .communicator = &communicator, .loss_rows = Strategy::Rows::all});
}

std::vector<std::unique_ptr<Strategy>> replica_strategies(const std::shared_ptr<nn::Module>& model,
                                                          const std::vector<Device>& devices,
                                                          const DdpOptions& options,
                                                          plan::AllReducePlan plan) {
  const auto group = std::make_shared<ReplicaGroup>(model, devices, options, plan);
  std::vector<std::unique_ptr<Strategy>> strategies;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    strategies.push_back(std::make_unique<Replica>(group, rank));
  }
  return strategies;
}

}  // namespace lockstep::parallel
