#include "engine/parallel/bitwise/micro_shards.h"

#include <array>

#include "engine/core/thread_context.h"
#include "engine/parallel/data_parallel/steps.h"
#include "engine/trace/span.h"
#include "kernels/calls.h"
#include "kernels/matmul_precision.h"

namespace lockstep::parallel {
namespace {

// into += from, on into's device.
void add_into(const std::vector<Tensor>& into, const std::vector<Tensor>& from) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    const Tensor local = from[i].to(into[i].device());
    into[i].bump_version();
    into[i].backend().axpy(into[i].stream(), {1.0, local.view(), into[i].view()});
  }
}

// The trained parameters: frozen ones have no gradients to add up.
std::vector<Variable> trained_parameters(const nn::Module& module) {
  std::vector<Variable> parameters = module.parameters();
  std::erase_if(parameters, [](const Variable& parameter) { return !parameter.requires_grad(); });
  return parameters;
}

// Moves the gradients of one micro-shard out of the parameters, so that the caller may keep them.
std::vector<Tensor> take_gradients(const std::vector<Variable>& parameters) {
  std::vector<Tensor> gradients;
  for (Variable parameter : parameters) {
    const Tensor& value = parameter.value();
    gradients.push_back(parameter.grad().defined()
                            ? parameter.grad().clone()
                            : Tensor::zeros(value.shape(), value.dtype(), value.device()));
    parameter.clear_grad();
  }
  return gradients;
}

// The copy begins at the start of a block of memory wherever the rows were, because a GPU's product
// may depend on the alignment of its factors.
Tensor aligned_rows(const Tensor& rows, const plan::ScatterPart& part, std::size_t first_row) {
  return rows.rows(part.offset - first_row, part.offset - first_row + part.size).clone();
}

}  // namespace

MicroShardResult run_micro_shards(nn::Module& module, const SumLoss& loss, const Tensor& x,
                                  const Tensor& labels, const plan::MicroShardPlan& plan,
                                  std::size_t device) {
  const kernels::UntunedScope untuned;
  const std::vector<Variable> parameters = trained_parameters(module);
  const std::size_t first_row = plan.rows_of_device(device).offset;
  const std::size_t count = plan.shards_per_device();
  std::vector<std::vector<Tensor>> gradients;
  std::array<double, plan::kNumMicroShards> losses{};
  ThreadContext context = thread_context();
  for (std::size_t i = 0; i < count; ++i) {
    const plan::ScatterPart& part = plan.shards[device * count + i];
    if (part.size > 0) {
      context.first_row = part.offset;
      ThreadContextScope scope(context);
      const Tensor shard_labels = aligned_rows(labels, part, first_row);
      const Variable output = module(Variable(aligned_rows(x, part, first_row)));
      const Variable sum = loss(output, shard_labels);
      sum.backward();
      losses[i] = sum.value().item();
    }
    gradients.push_back(take_gradients(parameters));
  }
  for (const plan::MicroShardAddition& addition : plan::micro_shard_additions(count)) {
    add_into(gradients[addition.into], gradients[addition.from]);
    losses[addition.into] += losses[addition.from];
  }
  return {std::move(gradients[0]), losses[0]};
}

double bitwise_data_parallel(nn::Module& module, const std::vector<Device>& devices,
                             const SumLoss& loss, const Tensor& x, const Tensor& labels) {
  require_on_device(module, devices[0]);
  const plan::MicroShardPlan plan = plan::micro_shard_plan(x.size(0), devices.size());
  const std::vector<Variable> originals = trained_parameters(module);
  std::vector<MicroShardResult> results(devices.size());
  for_each_device(devices, [&](std::size_t d) {
    const plan::ScatterPart rows = plan.rows_of_device(d);
    const std::shared_ptr<nn::Module> replica = module.copy_on(devices[d]);
    results[d] = run_micro_shards(
        *replica, loss, x.rows(rows.offset, rows.offset + rows.size).to(devices[d]),
        labels.rows(rows.offset, rows.offset + rows.size).to(devices[d]), plan, d);
  });
  // The upper levels of the tree: a sum over k devices is the tree over their k results.
  for (std::size_t distance = 1; distance < devices.size(); distance *= 2) {
    for (std::size_t d = 0; d + distance < devices.size(); d += 2 * distance) {
      add_into(results[d].gradients, results[d + distance].gradients);
      results[d].loss_sum += results[d + distance].loss_sum;
    }
  }
  for (std::size_t i = 0; i < originals.size(); ++i) {
    Variable original = originals[i];
    original.set_grad(results[0].gradients[i]);
  }
  return results[0].loss_sum;
}

double bitwise_all_reduce(nn::Module& module, const MicroShardResult& mine,
                          comm::Communicator& communicator) {
  comm::CollectiveOptions options;
  options.plan = plan::AllReducePlan::halving_doubling;
  std::vector<Variable> parameters = trained_parameters(module);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    communicator.all_reduce(mine.gradients[i], options).wait();
    parameters[i].set_grad(mine.gradients[i]);
  }
  const Tensor loss = Tensor::from(std::vector<double>{mine.loss_sum}, {1});
  communicator.all_reduce(loss, options).wait();
  return loss.item();
}

}  // namespace lockstep::parallel
