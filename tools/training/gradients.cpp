#include "tools/training/gradients.h"

#include "engine/autograd/backward.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/thread_context.h"
#include "engine/parallel/bitwise/micro_shards.h"
#include "engine/runtime/device_span.h"

namespace lockstep::tools {
namespace {

Variable sum_loss(const Variable& logits, const Tensor& labels) {
  return cross_entropy(logits, labels, Reduction::sum);
}

// Ranks average their gradients, so each rank's share of the global mean is scaled up by their
// number. A rank without rows contributes zeros.
double weight_of_loss(const TrainingTask& task, std::size_t num_ranks, const data::Batch& batch) {
  return task.sampler == Sampler::exact
             ? static_cast<double>(num_ranks) / static_cast<double>(batch.num_global_rows)
             : 1.0 / static_cast<double>(batch.labels.num_elements());
}

Tensor plain_gradients(const TrainingTask& task, std::size_t num_ranks, nn::Module& model,
                       const data::Batch& batch) {
  Variable loss;
  Tensor weight;
  {
    const runtime::WorkSpan span(batch.x.stream(), trace::Lane::compute, trace::Category::forward,
                                 "forward");
    weight = kept_scalar(weight_of_loss(task, num_ranks, batch), batch.x.dtype(), batch.x.device());
    loss = sum_loss(model(Variable(batch.x)), batch.labels);
  }
  {
    const runtime::WorkSpan span(batch.x.stream(), trace::Lane::compute, trace::Category::backward,
                                 "backward");
    loss.backward(weight);
  }
  return loss.value();
}

Tensor bitwise_gradients(const LocalModels& models, const data::Batch& batch) {
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
  const double factor = 1.0 / static_cast<double>(batch.num_global_rows);
  for (const Variable& parameter : model.inner->parameters()) {
    const TensorView grad = parameter.grad().view();
    batch.x.backend().scale(batch.x.stream(), grad, factor, grad);
  }
  return Tensor::from(std::vector<double>{loss_sum}, {1}, Device{});
}

}  // namespace

std::vector<Tensor> compute_gradients(const TrainingTask& task, const LocalModels& models,
                                      const std::vector<data::Batch>& batches) {
  std::vector<Tensor> losses(batches.size());
  const auto compute = [&](std::size_t local) {
    const data::Batch& batch = batches[local];
    thread_context().first_row = batch.global_offset;
    losses[local] =
        task.summation == Summation::bitwise
            ? bitwise_gradients(models, batch)
            : plain_gradients(task, models.num_ranks, *models.ranks[local].wrapped, batch);
  };
  if (models.replicas) {
    models.replicas->run_backward([&](nn::Module&, std::size_t rank) { compute(rank); });
  } else {
    compute(0);
  }
  return losses;
}

}  // namespace lockstep::tools
