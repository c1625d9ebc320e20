#include "tools/training/gradients.h"

#include "engine/autograd/ops/ops.h"
#include "engine/parallel/bitwise/micro_shards.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep::tools {
namespace {

Variable sum_loss(const Variable& logits, const Tensor& labels) {
  return cross_entropy(logits, labels, Reduction::sum);
}

Tensor plain_gradients(const TrainingTask& task, const RankModel& model, const data::Batch& batch) {
  Variable loss;
  {
    trace::ScopedSpan span(trace::Lane::compute, trace::Category::forward, "forward");
    runtime::DeviceSpan on_device(batch.x.stream(), trace::Lane::compute, trace::Category::forward,
                                  "forward");
    loss = sum_loss((*model.wrapped)(Variable(batch.x)), batch.labels);
  }
  // Ranks average their gradients, so each rank's share of the global mean is scaled up by their
  // number. A rank without rows contributes zeros.
  const auto world_size = static_cast<double>(model.num_ranks);
  const double weight = task.sampler == Sampler::exact
                            ? world_size / static_cast<double>(batch.num_global_rows)
                            : 1.0 / static_cast<double>(batch.labels.num_elements());
  {
    trace::ScopedSpan span(trace::Lane::compute, trace::Category::backward, "backward");
    runtime::DeviceSpan on_device(batch.x.stream(), trace::Lane::compute, trace::Category::backward,
                                  "backward");
    loss.backward(Tensor::full(loss.shape(), weight, loss.dtype(), loss.device()));
  }
  return loss.value();
}

Tensor bitwise_gradients(const RankModel& model, const data::Batch& batch) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::backward,
                         "micro-shards forward and backward");
  runtime::DeviceSpan on_device(batch.x.stream(), trace::Lane::compute, trace::Category::backward,
                                "micro-shards forward and backward");
  double loss_sum = 0;
  if (model.communicator) {
    const auto world_size = static_cast<std::size_t>(model.communicator->world_size());
    const auto rank = static_cast<std::size_t>(model.communicator->rank());
    const plan::MicroShardPlan plan = plan::micro_shard_plan(batch.num_global_rows, world_size);
    const parallel::MicroShardResult mine =
        parallel::run_micro_shards(*model.inner, sum_loss, batch.x, batch.labels, plan, rank);
    loss_sum = parallel::bitwise_all_reduce(*model.inner, mine, *model.communicator);
  } else {
    loss_sum = parallel::bitwise_data_parallel(*model.inner, model.devices, sum_loss, batch.x,
                                               batch.labels);
  }
  std::vector<TensorView> gradients;
  for (const Variable& parameter : model.inner->parameters()) {
    gradients.push_back(parameter.grad().view());
  }
  batch.x.backend().multi_scale(batch.x.stream(), gradients,
                                1.0 / static_cast<double>(batch.num_global_rows));
  return Tensor::from(std::vector<double>{loss_sum}, {1}, Device{});
}

}  // namespace

Tensor compute_gradients(const TrainingTask& task, const RankModel& model,
                         const data::Batch& batch) {
  return task.summation == Summation::bitwise ? bitwise_gradients(model, batch)
                                              : plain_gradients(task, model, batch);
}

}  // namespace lockstep::tools
