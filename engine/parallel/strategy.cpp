#include "engine/parallel/strategy.h"

#include <algorithm>
#include <utility>

#include "engine/autograd/ops/ops.h"
#include "engine/core/thread_context.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/runtime/device_span.h"

namespace lockstep::parallel {

Variable sum_cross_entropy(const Variable& logits, const Tensor& labels) {
  return cross_entropy(logits, labels.reshape({labels.num_elements()}), Reduction::sum,
                       Logits::consume);
}

Tensor add_row_gradients(nn::Module& model, const data::Batch& batch, const BatchLoss& loss,
                         const plan::ScatterPart& rows) {
  const Tensor x = batch.x.rows(rows.offset, rows.offset + rows.size);
  thread_context().first_row = batch.global_offset + rows.offset;
  Variable sum;
  {
    const runtime::WorkSpan span(x.stream(), trace::Lane::compute, trace::Category::forward,
                                 "forward");
    sum = loss.sum(model(Variable(x)), batch.labels.rows(rows.offset, rows.offset + rows.size));
  }
  {
    const runtime::WorkSpan span(x.stream(), trace::Lane::compute, trace::Category::backward,
                                 "backward");
    sum.backward(Tensor::cached_scalar(loss.weight, sum.value().dtype(), x.device()));
  }
  return sum.value();
}

Tensor add_batch_gradients(nn::Module& model, const data::Batch& batch, const BatchLoss& loss) {
  Tensor sum;
  for (const plan::ScatterPart& rows :
       plan::scatter_plan(batch.labels.size(0), loss.accumulate).parts) {
    const Tensor of_rows = add_row_gradients(model, batch, loss, rows);
    sum = sum.defined() ? sum.add_(of_rows) : of_rows;
  }
  return sum;
}

Strategy::Strategy(Setup setup) : setup_(std::move(setup)) {
  if (setup_.communicator != nullptr) {
    setup_.rank = setup_.communicator->rank();
    setup_.num_ranks = static_cast<std::size_t>(setup_.communicator->world_size());
  }
  if (setup_.devices.empty()) setup_.devices.push_back(setup_.module->parameters()[0].device());
  if (setup_.num_parts == 0) setup_.num_parts = std::max(setup_.num_ranks, setup_.devices.size());
}

std::size_t Strategy::shard() const {
  return setup_.rows == Rows::all ? 0 : static_cast<std::size_t>(setup_.rank);
}

plan::ScatterPart Strategy::rows_of(std::size_t num_global_rows) const {
  const plan::ScatterPlan plan = plan::scatter_plan(num_global_rows, num_shards());
  return shard() < plan.parts.size() ? plan.parts[shard()]
                                     : plan::ScatterPart{shard(), num_global_rows, 0};
}

Tensor Strategy::clip_gradients(double max_norm) {
  return optim::clip_grad_norm_on_device(module()->parameters(), max_norm);
}

Variable Strategy::evaluate(const Tensor& x) {
  return (*module())(Variable(x));
}

std::vector<ShardPiece> Strategy::pieces() const {
  std::vector<ShardPiece> all;
  for (const auto& [name, parameter] : module()->named_parameters()) {
    all.push_back({name, parameter.shape(), 0, 0, parameter});
  }
  return all;
}

std::vector<ShardPiece> Strategy::pieces(const optim::Optimizer& optimizer) const {
  const std::vector<ShardPiece> all = pieces();
  std::vector<ShardPiece> ordered;
  for (const Variable& value : optimizer.parameters()) {
    const auto found = std::ranges::find_if(
        all, [&](const ShardPiece& piece) { return piece.value.is_same(value); });
    if (found != all.end()) ordered.push_back(*found);  // else the padding of Sharded::groups
  }
  return ordered;
}

std::vector<optim::ParameterGroup> Strategy::groups(double weight_decay, Decays decays) const {
  const std::vector<Variable> parameters = module()->parameters();
  if (decays == Decays::all) return {{parameters, weight_decay}};
  return optim::decay_groups(parameters, weight_decay);
}

Tensor Strategy::cut(const ShardPiece& piece, const Tensor& whole) const {
  return piece_of(piece, whole);
}

void Strategy::gather(const OfPiece& of_piece, const Visit& visit) const {
  for (const ShardPiece& piece : pieces()) visit(piece.name, of_piece(piece));
}

nn::StateDict Strategy::state_dict() const {
  nn::StateDict copy;
  for (const auto& [name, tensor] : nn::state_dict(*module())) {
    copy.emplace_back(name, tensor.to(Device{}).clone());
  }
  return copy;
}

}  // namespace lockstep::parallel
