// A rank knows from the output's graph which of its parameters will get no gradient, and counts
// them at once, so that their buckets need not wait. Afterwards the ranks tell each other which
// they used: a gradient that some rank computed is the average for all, and one that nobody
// computed stays what it was.
#include <algorithm>
#include <set>

#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/parallel/ddp/unused_parameters.h"

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

class FoundUnused final : public UnusedParameters {
 public:
  FoundUnused(Unused policy, GradBuckets& buckets)
      : policy_(policy), buckets_(buckets), used_(buckets.parameters().size(), 0) {}

  void look_at(const Variable& output) override;
  void add_used(std::size_t parameter) override;
  void add_used_locally(std::size_t parameter) override;
  const std::vector<std::size_t>& begin_backward() override;
  void end_backward(comm::Communicator& communicator) override;
  void answer(comm::Communicator& communicator) override;

 private:
  bool knows_all() const { return policy_ == Unused::as_first && num_steps_ > 0; }
  std::vector<std::int64_t> count_users(const std::vector<std::int64_t>& mine,
                                        comm::Communicator& communicator) const;

  Unused policy_;
  GradBuckets& buckets_;
  bool has_looked_ = false;          // since the last backward pass
  std::vector<std::size_t> unused_;  // unused in the coming backward pass, or the running one
  std::vector<std::int64_t> used_;   // 1 by parameter: used since the last synchronised pass
  std::vector<std::int64_t> users_;  // each parameter's users among ranks in the last step
  std::vector<Tensor> kept_;         // the gradients that those had before
  std::size_t num_steps_ = 0;
};

void FoundUnused::look_at(const Variable& output) {
  if (knows_all()) return;
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

void FoundUnused::add_used_locally(std::size_t parameter) {
  used_[parameter] = 1;
  has_looked_ = false;  // the forward pass in no_sync has had its backward pass
}

void FoundUnused::add_used(std::size_t parameter) {
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

const std::vector<std::size_t>& FoundUnused::begin_backward() {
  has_looked_ = false;
  kept_.clear();
  for (const std::size_t i : unused_) {
    const Tensor& grad = buckets_.parameters()[i].second.grad();
    kept_.push_back(grad.defined() ? grad.clone() : Tensor());
  }
  return unused_;
}

std::vector<std::int64_t> FoundUnused::count_users(const std::vector<std::int64_t>& mine,
                                                   comm::Communicator& communicator) const {
  const Tensor counts = Tensor::from(mine, {mine.size()}, Device{});
  communicator.all_reduce(counts, {.op = comm::ReduceOp::sum}).wait();
  return counts.to_vector<std::int64_t>();
}

void FoundUnused::end_backward(comm::Communicator& communicator) {
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

void FoundUnused::answer(comm::Communicator& communicator) {
  if (!knows_all()) users_ = count_users(std::vector<std::int64_t>(used_.size(), 0), communicator);
  ++num_steps_;
}

}  // namespace

std::unique_ptr<UnusedParameters> find_unused_parameters(Unused policy, GradBuckets& buckets) {
  if (policy == Unused::error) return nullptr;
  return std::make_unique<FoundUnused>(policy, buckets);
}

}  // namespace lockstep::parallel
