#include "engine/parallel/ddp/unused_parameters.h"

#include <algorithm>
#include <set>

#include "engine/autograd/node.h"
#include "engine/core/error.h"

namespace lockstep::parallel {

namespace {

// The leaves that backward() of this output would reach.
std::set<const void*> reached_leaves(const Variable& output) {
  std::set<const void*> leaves;
  std::set<const Node*> seen;
  std::vector<const Node*> waiting;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) waiting.push_back(node);
  };
  visit(output.node().get());
  while (!waiting.empty()) {
    const Node* const node = waiting.back();
    waiting.pop_back();
    for (std::size_t i = 0; i < node->num_inputs(); ++i) {
      const Edge& edge = node->edge(i);
      if (edge.leaf.defined()) leaves.insert(edge.leaf.identity());
      visit(edge.node.get());
    }
  }
  return leaves;
}

}  // namespace

UnusedParameters::UnusedParameters(Unused policy, GradBuckets& buckets)
    : policy_(policy), buckets_(buckets), used_(buckets.parameters().size(), 0) {}

void UnusedParameters::look_at(const Variable& output) {
  if (policy_ == Unused::error || knows_all()) return;
  const std::set<const void*> leaves = reached_leaves(output);
  const auto is_reached = [&](std::size_t i) {
    return leaves.contains(buckets_.parameters()[i].second.identity());
  };
  if (has_looked_) {
    std::erase_if(unused_, is_reached);
    return;
  }
  has_looked_ = true;
  unused_.clear();
  for (std::size_t i = 0; i < used_.size(); ++i) {
    if (!is_reached(i)) unused_.push_back(i);
  }
}

void UnusedParameters::add_used_locally(std::size_t parameter) {
  if (policy_ == Unused::error) return;
  used_[parameter] = 1;
  has_looked_ = false;  // the forward pass in no_sync has had its backward pass
}

void UnusedParameters::add_used(std::size_t parameter) {
  if (policy_ == Unused::error) return;
  used_[parameter] = 1;
  if (std::ranges::find(unused_, parameter) == unused_.end()) return;
  const std::string& name = buckets_.parameters()[parameter].first;
  require(!knows_all(), ErrorCode::State, "ddp",
          "parameter {} got a gradient in this step but not in the first; under Unused::as_first "
          "every step must use the same parameters; use Unused::find",
          name);
  fail(ErrorCode::State, "ddp",
       "parameter {} got a gradient, but what the module returned does not depend on it; compute "
       "the loss from what the forward pass of the wrapped module returns",
       name);
}

const std::vector<std::size_t>& UnusedParameters::begin_backward() {
  has_looked_ = false;
  kept_.clear();
  for (const std::size_t i : unused_) {
    const Tensor& grad = buckets_.parameters()[i].second.grad();
    kept_.push_back(grad.defined() ? grad.clone() : Tensor());
  }
  return unused_;
}

std::vector<std::int64_t> UnusedParameters::count_users(const std::vector<std::int64_t>& mine,
                                                        comm::Communicator& communicator) const {
  const Tensor counts = Tensor::from(mine, {mine.size()}, Device{});
  communicator.all_reduce(counts, {.op = comm::ReduceOp::sum}).wait();
  return counts.to_vector<std::int64_t>();
}

void UnusedParameters::end_backward(comm::Communicator& communicator) {
  if (policy_ == Unused::error) return;
  if (!knows_all()) users_ = count_users(used_, communicator);
  for (std::size_t k = 0; k < unused_.size(); ++k) {
    const std::size_t i = unused_[k];
    Variable parameter = buckets_.parameters()[i].second;
    if (users_[i] > 0) {
      parameter.set_grad(buckets_.slot(i));
    } else if (kept_[k].defined()) {
      buckets_.slot(i).copy_from(kept_[k]);
    }
  }
  kept_.clear();
  std::ranges::fill(used_, 0);
  ++num_steps_;
}

void UnusedParameters::answer(comm::Communicator& communicator) {
  if (policy_ == Unused::error) return;
  if (!knows_all()) users_ = count_users(std::vector<std::int64_t>(used_.size(), 0), communicator);
  ++num_steps_;
}

}  // namespace lockstep::parallel
