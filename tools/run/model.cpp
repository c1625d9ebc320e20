#include "tools/run/model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "engine/parallel/strategies.h"
#include "engine/plan/scatter.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/counters.h"

namespace lockstep::tools {
namespace {

parallel::DdpOptions ddp_options(const TrainingTask& task) {
  parallel::DdpOptions options;
  options.reducer.bucket_byte_limits = task.bucket_byte_limits;
  if (task.resumed) options.reducer.order = task.resumed->bucket_order;
  return options;
}

data::EpochSampler sampler_of_all(const TrainingTask& task, std::size_t world_size,
                                  std::size_t rank) {
  data::SamplerOptions options;
  options.num_samples = task.data->train.num_rows();
  options.batch_size = task.batch;
  options.seed = task.seed;
  options.shuffle = task.shuffle;
  options.windows = task.data->train.windows();
  options.world_size = world_size;
  options.rank = rank;
  if (task.sampler == Sampler::torch) {
    return [options](std::uint64_t epoch) { return data::torch_batches(options, epoch); };
  }
  if (task.summation == Summation::bitwise) {
    return [options](std::uint64_t epoch) { return data::micro_shard_batches(options, epoch); };
  }
  return [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); };
}

// Leaves out the steps that a resumed run has behind it.
data::EpochSampler make_sampler(const TrainingTask& task, std::size_t world_size,
                                std::size_t rank) {
  const std::size_t done = task.first_step();
  if (done == 0) return sampler_of_all(task, world_size, rank);
  const std::size_t per_epoch = task.steps_per_epoch();
  return [all = sampler_of_all(task, world_size, rank), done, per_epoch](std::uint64_t epoch) {
    std::vector<data::BatchShard> batches = all(epoch);
    if (epoch == done / per_epoch) {
      batches.erase(batches.begin(),
                    batches.begin() + static_cast<std::ptrdiff_t>(done % per_epoch));
    }
    return batches;
  };
}

// One device computes what several would: it takes the batch in their shares, of which the first
// one's running statistics are the run's, and scales its loss as they do, and its gradients back.
class OneAsSeveral final : public parallel::Strategy {
 public:
  OneAsSeveral(const TrainingTask& task, std::shared_ptr<nn::Module> model)
      : Strategy({.module = std::move(model), .num_parts = task.num_shares}), task_(task) {}

  Tensor add_gradients(const data::Batch& batch, const parallel::BatchLoss& loss) override {
    const Tensor sum = task_.num_shares > 1 ? gradients_in_shares(batch, loss)
                                            : add_batch_gradients(*module(), batch, loss);
    if (task_.loss_ranks == 1) return sum;
    for (const Variable& parameter : module()->parameters()) {
      parameter.grad().scale_(1.0 / static_cast<double>(task_.loss_ranks));
    }
    return sum;
  }

 private:
  Tensor gradients_in_shares(const data::Batch& batch, const parallel::BatchLoss& loss) {
    Tensor sum;
    std::vector<Tensor> kept;
    for (const plan::ScatterPart& share :
         plan::scatter_plan(batch.labels.size(0), task_.num_shares).parts) {
      const Tensor of_share = add_row_gradients(*module(), batch, loss, share);
      sum = sum.defined() ? sum.add_(of_share) : of_share;
      const std::vector<Tensor> buffers = module()->buffers();
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (share.index == 0) kept.push_back(buffers[i].clone());
        buffers[i].copy_from(kept[i]);
      }
    }
    return sum;
  }

  const TrainingTask& task_;
};

}  // namespace

std::vector<Device> devices_of(const Strategies& strategies) {
  std::vector<Device> all;
  for (const auto& strategy : strategies) {
    all.insert(all.end(), strategy->devices().begin(), strategy->devices().end());
  }
  return all;
}

std::vector<double> sum_over_ranks(const parallel::Strategy& strategy,
                                   const std::vector<double>& numbers) {
  if (strategy.communicator() == nullptr) return numbers;
  const Tensor total = Tensor::from(numbers, {numbers.size()});
  strategy.communicator()->all_reduce(total).wait();
  return total.to_vector<double>();
}

std::shared_ptr<nn::Module> make_model(const TrainingTask& task, Device device) {
  nn::ModelSpec spec = nn::parse_model(task.model);
  spec.gpt.dropout = task.dropout;
  const std::shared_ptr<nn::Module> model =
      nn::make_model(spec, task.model_data(), task.seed, task.dtype, device);
  if (task.initial_weights) nn::load_state_dict(*model, *task.initial_weights);
  return model;
}

Strategies make_strategies(const TrainingTask& task, const DevicePlacement& placement) {
  std::shared_ptr<nn::Module> model = make_model(task, placement.devices[0]);
  if (placement.mode == Mode::ddp) {
    return parallel::replica_strategies(model, placement.devices, ddp_options(task),
                                        task.all_reduce_plan);
  }
  Strategies strategies;
  if (task.summation == Summation::bitwise) {
    strategies.push_back(parallel::bitwise_strategy(std::move(model), placement.devices));
  } else if (placement.mode == Mode::data_parallel) {
    strategies.push_back(parallel::data_parallel_strategy(
        std::move(model), {.devices = placement.devices, .batch_norm = task.batch_norm}));
  } else if (task.num_shares > 1 || task.loss_ranks > 1) {
    strategies.push_back(std::make_unique<OneAsSeveral>(task, std::move(model)));
  } else {
    strategies.push_back(parallel::single_device(std::move(model)));
  }
  return strategies;
}

namespace {

std::unique_ptr<parallel::Strategy> make_strategy_of_rank(const TrainingTask& task, Device device,
                                                          comm::Communicator& communicator) {
  std::shared_ptr<nn::Module> model = make_model(task, device);
  if (task.pipeline) return parallel::pipeline_strategy(model, communicator, *task.pipeline);
  // These messages are sent once, not in every step, so they do not count.
  const trace::UncountedScope before_the_steps({communicator.rank()});
  if (task.cuts_tensors) return parallel::tensor_strategy(*model, communicator);
  if (task.summation == Summation::bitwise) {
    return parallel::bitwise_strategy(std::move(model), communicator);
  }
  if (task.batch_norm == parallel::BatchNormRows::all) {
    parallel::sync_batch_norm(*model, communicator);
  }
  if (task.shard) return parallel::sharded_strategy(std::move(model), communicator, *task.shard);
  return parallel::ddp_strategy(std::move(model), communicator, ddp_options(task));
}

}  // namespace

Strategies make_strategies(const TrainingTask& task, Device device,
                           comm::Communicator& communicator) {
  Strategies strategies;
  strategies.push_back(make_strategy_of_rank(task, device, communicator));
  // The whole model was there before it was cut; the steps' peak is what counts.
  if (strategies[0]->is_in_parts()) runtime::logical_device(device).memory().reset_peak();
  return strategies;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerSettings& settings,
                                                 const std::vector<optim::ParameterGroup>& groups) {
  if (settings.kind == OptimizerKind::adamw) {
    optim::AdamWOptions options;
    options.learning_rate = settings.learning_rate;
    return std::make_unique<optim::AdamW>(groups, options);
  }
  optim::SgdOptions options;
  options.learning_rate = settings.learning_rate;
  options.momentum = settings.momentum;
  options.weight_decay = settings.weight_decay;
  options.kind = settings.momentum_kind;
  std::vector<Variable> parameters;
  for (const optim::ParameterGroup& group : groups) {
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  }
  return std::make_unique<optim::Sgd>(parameters, options);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainingTask& task,
                                                 const parallel::Strategy& strategy) {
  const OptimizerSettings& settings = task.optimizer;
  return make_optimizer(settings, strategy.groups(settings.weight_decay, settings.decays));
}

std::unique_ptr<data::DataLoader> make_loader(const TrainingTask& task,
                                              const parallel::Strategy& strategy) {
  return std::make_unique<data::DataLoader>(
      std::shared_ptr<const data::LabelledRows>(task.data, &task.data->train),
      make_sampler(task, strategy.num_shards(), strategy.shard()),
      data::BatchOptions{.seed = task.seed,
                         .device = strategy.devices()[0],
                         .dtype = task.dtype,
                         .row_shape = task.model_data().row,
                         .augmentation = task.augmentation});
}

namespace {

// Ranks average their gradients, so each rank's share of the global mean is scaled up by their
// number. A rank without rows contributes zeros.
double weight_of_loss(const TrainingTask& task, std::size_t num_ranks, const data::Batch& batch) {
  const auto labels_per_row = static_cast<double>(task.data->train.labels_per_row());
  const double share =
      task.sampler == Sampler::exact
          ? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)
          : 1.0 / static_cast<double>(batch.labels.size(0));
  return share / labels_per_row;
}

}  // namespace

Tensor add_gradients(const TrainingTask& task, parallel::Strategy& strategy,
                     const data::Batch& batch) {
  const std::size_t num_ranks = std::max(strategy.num_averaged(), task.loss_ranks);
  const double weight = weight_of_loss(task, num_ranks, batch);
  return strategy.add_gradients(batch, {.weight = weight, .accumulate = task.accumulate});
}

std::size_t num_state_tensors(const OptimizerSettings& settings) {
  if (settings.kind == OptimizerKind::adamw) return 2;
  return settings.momentum != 0 ? 1 : 0;
}

parallel::Strategy::OfPiece by_piece(const parallel::Strategy& strategy,
                                     const optim::Optimizer& optimizer, TensorOf tensor_of) {
  std::map<const void*, std::size_t> places;
  const auto pieces = strategy.pieces(optimizer);
  for (std::size_t i = 0; i < pieces.size(); ++i) places[pieces[i].value.identity()] = i;
  return [places = std::move(places),
          tensor_of = std::move(tensor_of)](const parallel::ShardPiece& piece) {
    return tensor_of(places.at(piece.value.identity()));
  };
}

OptimizerStates whole_optimizer_state(const TrainingTask& task, const parallel::Strategy& strategy,
                                      const optim::Optimizer& optimizer, std::size_t num_steps) {
  OptimizerStates states;
  for (const auto& [name, parameter] : strategy.module()->named_parameters()) {
    states.emplace_back(name, optim::Optimizer::State{num_steps, {}});
  }
  const auto visit_all = [&](const TensorOf& tensor_of, std::size_t num_tensors) {
    strategy.gather(by_piece(strategy, optimizer, tensor_of), [&](const std::string& name,
                                                                  const Tensor& whole) {
      if (strategy.rank() != 0) return;
      auto found = std::ranges::find(states, name, &OptimizerStates::value_type::first);
      if (found == states.end()) {
        found = states.insert(found, {name, {num_steps, {}}});
      }
      // A parameter that two stages hold has the same state on both.
      std::vector<Tensor>& tensors = found->second.tensors;
      if (tensors.size() < num_tensors) tensors.push_back(whole.to(Device{}));
    });
  };
  const std::size_t num_states = num_state_tensors(task.optimizer);
  for (std::size_t s = 0; s < num_states; ++s) {
    visit_all([&](std::size_t i) { return optimizer.state(i).tensors.at(s); }, s + 1);
  }
  if (num_states == 0) {  // for the names alone
    visit_all([&](std::size_t i) { return optimizer.parameters()[i].value(); }, 0);
  }
  return states;
}

}  // namespace lockstep::tools
