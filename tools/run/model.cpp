#include "tools/run/model.h"

#include <algorithm>
#include <map>
#include <span>

#include "engine/autograd/backward.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/thread_context.h"
#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/parallel/bitwise/micro_shards.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/plan/scatter.h"
#include "engine/runtime/device_span.h"
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

LocalModels make_replicas(const TrainingTask& task, const std::vector<Device>& devices) {
  LocalModels models;
  models.num_ranks = devices.size();
  models.replicas = std::make_unique<parallel::ReplicaGroup>(
      make_model(task, devices[0]), devices, ddp_options(task), task.all_reduce_plan);
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const std::shared_ptr<nn::Module> replica(std::shared_ptr<void>(),  // the group owns it
                                              &models.replicas->replica(rank));
    models.ranks.push_back({static_cast<int>(rank), replica, replica, {devices[rank]}});
  }
  return models;
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

// Without the steps that a resumed run has made.
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

Variable sum_loss(const Variable& logits, const Tensor& labels) {
  return cross_entropy(logits, labels.reshape({labels.num_elements()}), Reduction::sum,
                       Logits::consume);
}

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

// Adds the gradients of these rows of the batch, and returns the sum of their losses.
Tensor add_gradients(const TrainingTask& task, nn::Module& model, const data::Batch& batch,
                     const plan::ScatterPart& rows, double weight) {
  const Tensor x = batch.x.rows(rows.offset, rows.offset + rows.size);
  thread_context().first_row = batch.global_offset + rows.offset;
  Variable loss;
  Tensor grad;
  {
    const runtime::WorkSpan span(x.stream(), trace::Lane::compute, trace::Category::forward,
                                 "forward");
    grad = kept_scalar(weight, task.dtype, x.device());
    loss = sum_loss(model(Variable(x)), batch.labels.rows(rows.offset, rows.offset + rows.size));
  }
  {
    const runtime::WorkSpan span(x.stream(), trace::Lane::compute, trace::Category::backward,
                                 "backward");
    loss.backward(grad);
  }
  return loss.value();
}

// The rows of each micro-batch. Sharded ranks talk to each other in every pass, so all of them make
// as many passes, some without rows, whatever their share of a smaller batch is.
std::vector<plan::ScatterPart> micro_batches(const TrainingTask& task, std::size_t num_rows) {
  std::vector<plan::ScatterPart> parts = plan::scatter_plan(num_rows, task.accumulate).parts;
  while (task.shard && parts.size() < task.accumulate) {
    parts.push_back({parts.size(), num_rows, 0});
  }
  return parts;
}

// One micro-batch after the other. Ranks all-reduce once: behind the last one.
Tensor plain_gradients(const TrainingTask& task, std::size_t num_ranks, nn::Module& model,
                       const data::Batch& batch) {
  const double weight = weight_of_loss(task, num_ranks, batch);
  const std::vector<plan::ScatterPart> parts = micro_batches(task, batch.labels.size(0));
  Tensor sum;
  const auto add = [&](const plan::ScatterPart& rows) {
    const Tensor loss = add_gradients(task, model, batch, rows, weight);
    sum = sum.defined() ? sum.add_(loss) : loss;
  };
  const std::span<const plan::ScatterPart> earlier(parts.begin(), parts.end() - 1);
  if (auto* const ddp = dynamic_cast<parallel::Ddp*>(&model)) {
    const auto no_sync = ddp->no_sync();
    std::ranges::for_each(earlier, add);
  } else if (auto* const sharded = dynamic_cast<parallel::Sharded*>(&model)) {
    const auto no_step = sharded->no_step();
    std::ranges::for_each(earlier, add);
  } else {
    std::ranges::for_each(earlier, add);
  }
  add(parts.back());
  return sum;
}

// One device computes what several would: the first one's running statistics are the run's.
Tensor gradients_in_shares(const TrainingTask& task, nn::Module& model, const data::Batch& batch) {
  const double weight = weight_of_loss(task, task.loss_ranks, batch);
  Tensor sum;
  std::vector<Tensor> kept;
  for (const plan::ScatterPart& share :
       plan::scatter_plan(batch.labels.size(0), task.num_shares).parts) {
    const Tensor loss = add_gradients(task, model, batch, share, weight);
    sum = sum.defined() ? sum.add_(loss) : loss;
    const std::vector<Tensor> buffers = model.buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (share.index == 0) kept.push_back(buffers[i].clone());
      buffers[i].copy_from(kept[i]);
    }
  }
  return sum;
}

Tensor bitwise_gradients(const TrainingTask& task, const LocalModels& models,
                         const data::Batch& batch) {
  const runtime::WorkSpan span(batch.x.stream(), trace::Lane::compute, trace::Category::backward,
                               "micro-shards forward and backward");
  const RankModel& model = models.first();
  double loss_sum = 0;
  if (models.communicator) {
    const plan::MicroShardPlan plan =
        plan::micro_shard_plan(batch.num_global_rows, models.num_ranks);
    const parallel::MicroShardResult mine = parallel::run_micro_shards(
        *model.inner, sum_loss, batch.x, batch.labels, plan, static_cast<std::size_t>(model.rank));
    loss_sum = parallel::bitwise_all_reduce(*model.inner, mine, *models.communicator);
  } else {
    loss_sum = parallel::bitwise_data_parallel(*model.inner, model.devices, sum_loss, batch.x,
                                               batch.labels);
  }
  const double factor =
      1.0 / static_cast<double>(batch.num_global_rows * task.data->train.labels_per_row());
  for (const Variable& parameter : model.inner->parameters()) {
    const TensorView grad = parameter.grad().view();
    batch.x.backend().scale(batch.x.stream(), grad, factor, grad);
  }
  return Tensor::from(std::vector<double>{loss_sum}, {1}, Device{});
}

}  // namespace

std::vector<double> LocalModels::sum_over_ranks(const std::vector<double>& numbers) const {
  if (communicator == nullptr) return numbers;
  const Tensor total = Tensor::from(numbers, {numbers.size()});
  communicator->all_reduce(total).wait();
  return total.to_vector<double>();
}

nn::StateDict LocalModels::copy_weights() const {
  if (pipeline) return pipeline->gather_state();
  if (sharded) return sharded->state_dict();
  nn::StateDict copy;
  for (const auto& [name, tensor] : nn::state_dict(*first().inner)) {
    copy.emplace_back(name, tensor.to(Device{}).clone());
  }
  return copy;
}

// Ranks of DDP have the same gradients, and so the same norm.
Tensor LocalModels::clip_gradients(double max_norm) const {
  if (pipeline) return pipeline->clip_gradients(max_norm);
  if (sharded) return sharded->clip_grad_norm(max_norm);
  Tensor norm;
  for (const RankModel& model : ranks) {
    norm = optim::clip_grad_norm_on_device(model.inner->parameters(), max_norm);
  }
  return norm;
}

std::vector<Device> LocalModels::devices() const {
  std::vector<Device> all;
  for (const RankModel& rank : ranks) {
    all.insert(all.end(), rank.devices.begin(), rank.devices.end());
  }
  return all;
}

std::shared_ptr<nn::Module> make_model(const TrainingTask& task, Device device) {
  nn::ModelSpec spec = nn::parse_model(task.model);
  spec.gpt.dropout = task.dropout;
  const std::shared_ptr<nn::Module> model =
      nn::make_model(spec, task.model_data(), task.seed, task.dtype, device);
  if (task.initial_weights) nn::load_state_dict(*model, *task.initial_weights);
  return model;
}

LocalModels make_models(const TrainingTask& task, const DevicePlacement& placement) {
  if (placement.mode == Mode::ddp) return make_replicas(task, placement.devices);
  LocalModels models;
  const std::shared_ptr<nn::Module> model = make_model(task, placement.devices[0]);
  models.ranks.push_back({0, model, model, placement.devices});
  if (placement.mode == Mode::data_parallel) {
    parallel::DataParallelOptions options;
    options.devices = placement.devices;
    options.batch_norm = task.batch_norm;
    models.ranks[0].wrapped = std::make_shared<parallel::DataParallel>(model, options);
  }
  return models;
}

LocalModels make_rank_model(const TrainingTask& task, Device device,
                            comm::Communicator& communicator) {
  LocalModels models;
  models.num_ranks = static_cast<std::size_t>(communicator.world_size());
  models.communicator = &communicator;
  if (task.pipeline) {
    models.pipeline = std::make_unique<parallel::PipelineStage>(make_model(task, device),
                                                                communicator, *task.pipeline);
    const std::shared_ptr<nn::Module>& tensors = models.pipeline->tensors();
    models.ranks.push_back({communicator.rank(), tensors, tensors, {device}});
    runtime::logical_device(device)
        .memory()
        .reset_peak();  // the whole model was there for a moment
    return models;
  }
  const std::shared_ptr<nn::Module> model = make_model(task, device);
  models.ranks.push_back({communicator.rank(), model, model, {device}});
  // These messages are sent once, not in every step, so they do not count.
  const trace::UncountedScope before_the_steps({communicator.rank()});
  if (task.summation == Summation::bitwise) {  // its gradients are reduced in a fixed order instead
    parallel::broadcast_model(*model, communicator);
  } else {
    if (task.batch_norm == parallel::BatchNormRows::all) {
      parallel::sync_batch_norm(*model, communicator);
    }
    if (task.shard) {
      models.sharded = std::make_shared<parallel::Sharded>(model, communicator, *task.shard);
      models.ranks[0].wrapped = models.sharded;
      // The whole model was there before it was cut; the steps' peak is what counts.
      runtime::logical_device(device).memory().reset_peak();
    } else {
      models.ranks[0].wrapped =
          std::make_shared<parallel::Ddp>(model, communicator, ddp_options(task));
    }
  }
  return models;
}

std::vector<std::size_t> bucket_order(const LocalModels& models) {
  std::vector<std::size_t> order;
  const auto* const ddp = dynamic_cast<const parallel::Ddp*>(models.first().wrapped.get());
  if (ddp == nullptr || !ddp->reducer().was_rebuilt()) return order;
  for (const plan::Bucket& bucket : ddp->reducer().bucket_plan().buckets) {
    for (const std::size_t parameter : bucket.parameters()) order.push_back(parameter);
  }
  return order;
}

namespace {

// Groups of whole parameters or, if the model is sharded, of this rank's pieces.
std::vector<optim::ParameterGroup> groups_of(const OptimizerSettings& settings,
                                             const RankModel& model) {
  const bool all_decay = settings.decays == OptimizerSettings::Decays::all;
  if (const auto* const sharded = dynamic_cast<const parallel::Sharded*>(model.wrapped.get())) {
    using Decays = parallel::Sharded::Decays;
    return sharded->groups(settings.weight_decay, all_decay ? Decays::all : Decays::matrices);
  }
  const std::vector<Variable> parameters = model.inner->parameters();
  if (all_decay) return {{parameters, settings.weight_decay}};
  return optim::decay_groups(parameters, settings.weight_decay);
}

}  // namespace

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

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainingTask& task, const RankModel& model) {
  return make_optimizer(task.optimizer, groups_of(task.optimizer, model));
}

std::unique_ptr<data::DataLoader> make_loader(const TrainingTask& task, const LocalModels& models,
                                              const RankModel& model) {
  return std::make_unique<data::DataLoader>(
      std::shared_ptr<const data::LabelledRows>(task.data, &task.data->train),
      make_sampler(task, models.num_shards(), models.shard_of(model)),
      data::BatchOptions{.seed = task.seed,
                         .device = model.devices[0],
                         .dtype = task.dtype,
                         .row_shape = task.model_data().row,
                         .augmentation = task.augmentation});
}

std::vector<Tensor> compute_gradients(const TrainingTask& task, const LocalModels& models,
                                      const std::vector<data::Batch>& batches) {
  std::vector<Tensor> losses(batches.size());
  const auto compute = [&](std::size_t local) {
    const data::Batch& batch = batches[local];
    thread_context().first_row = batch.global_offset;
    if (models.pipeline) {
      losses[local] = models.pipeline->run_step(batch.x, batch.labels, batch.global_offset,
                                                weight_of_loss(task, 1, batch), sum_loss);
      return;
    }
    nn::Module& model = *models.ranks[local].wrapped;
    const std::size_t num_ranks = std::max(models.num_ranks, task.loss_ranks);
    losses[local] = task.summation == Summation::bitwise ? bitwise_gradients(task, models, batch)
                    : task.num_shares > 1                ? gradients_in_shares(task, model, batch)
                                          : plain_gradients(task, num_ranks, model, batch);
    if (task.loss_ranks == 1) return;
    for (const Variable& parameter : model.parameters()) {
      parameter.grad().scale_(1.0 / static_cast<double>(task.loss_ranks));
    }
  };
  if (models.replicas) {
    models.replicas->run_backward([&](nn::Module&, std::size_t rank) { compute(rank); });
  } else {
    compute(0);
  }
  return losses;
}

std::vector<parallel::ShardPiece> optimized_pieces(const optim::Optimizer& optimizer,
                                                   const RankModel& model) {
  std::vector<parallel::ShardPiece> all;
  if (const auto* const sharded = dynamic_cast<const parallel::Sharded*>(model.wrapped.get())) {
    all = sharded->pieces();
  } else {
    for (const auto& [name, parameter] : model.inner->named_parameters()) {
      all.push_back({name, parameter.shape(), 0, 0, parameter});
    }
  }
  std::vector<parallel::ShardPiece> ordered;
  for (const Variable& value : optimizer.parameters()) {
    const auto found = std::ranges::find_if(
        all, [&](const parallel::ShardPiece& piece) { return piece.value.is_same(value); });
    if (found != all.end()) ordered.push_back(*found);  // else the padding of Sharded::groups
  }
  return ordered;
}

void visit_whole(const LocalModels& models, std::size_t local, const optim::Optimizer& optimizer,
                 const std::function<Tensor(std::size_t piece)>& of_piece,
                 const std::function<void(const std::string& name, const Tensor& whole)>& visit) {
  const auto pieces = optimized_pieces(optimizer, models.ranks[local]);
  if (!models.sharded) {
    for (std::size_t i = 0; i < pieces.size(); ++i) visit(pieces[i].name, of_piece(i));
    return;
  }
  std::map<const void*, std::size_t> places;
  for (std::size_t i = 0; i < pieces.size(); ++i) places[pieces[i].value.identity()] = i;
  models.sharded->gather(
      [&](const parallel::ShardPiece& piece) {
        return of_piece(places.at(piece.value.identity()));
      },
      visit);
}

std::size_t num_state_tensors(const OptimizerSettings& settings) {
  if (settings.kind == OptimizerKind::adamw) return 2;
  return settings.momentum != 0 ? 1 : 0;
}

OptimizerStates whole_optimizer_state(const TrainingTask& task, const LocalModels& models,
                                      const optim::Optimizer& optimizer, std::size_t num_steps) {
  OptimizerStates states;
  const bool has_tensors = models.first().rank == 0 || models.pipeline;
  for (const auto& [name, parameter] : models.first().inner->named_parameters()) {
    states.emplace_back(name, optim::Optimizer::State{num_steps, {}});
  }
  for (std::size_t s = 0; s < num_state_tensors(task.optimizer); ++s) {
    visit_whole(
        models, 0, optimizer, [&](std::size_t i) { return optimizer.state(i).tensors.at(s); },
        [&](const std::string& name, const Tensor& whole) {
          if (!has_tensors) return;
          const auto found = std::ranges::find(states, name, &OptimizerStates::value_type::first);
          found->second.tensors.push_back(whole.to(Device{}));
        });
  }
  return states;
}

}  // namespace lockstep::tools
