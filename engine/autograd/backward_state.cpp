#include "engine/autograd/backward_state.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "engine/audit/losses.h"
#include "engine/audit/values.h"
#include "engine/autograd/variable_impl.h"
#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/span.h"

namespace lockstep {

namespace {

thread_local BackwardPass::State* running_pass = nullptr;

}  // namespace

BackwardPass::State* running_backward_pass() {
  return running_pass;
}

std::uint64_t audited_pass() {
  return running_pass == nullptr ? 0 : running_pass->audit_pass;
}

// Counts, for every node that backward will reach, the gradients that will arrive there.
void BackwardPass::State::discover(const std::shared_ptr<Node>& root) {
  std::vector<const Node*> pending{root.get()};
  arrivals[root.get()];
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    require(!node->released_, ErrorCode::State, "backward",
            "the graph was released by an earlier backward (at {}); "
            "pass Graph::retain to the first call to go through it twice",
            node->name());
    ++outstanding;
    queue(node->device());
    for (const Edge& edge : node->edges_) {
      if (edge.leaf.defined()) {
        queue(edge.device);
        ++leaf_arrivals[edge.leaf.identity()].missing;
      }
      if (!edge.node) continue;
      const auto [entry, is_new] = arrivals.try_emplace(edge.node.get());
      ++entry->second.missing;
      if (is_new) pending.push_back(edge.node.get());
    }
  }
}

// REQUIRES: guard() held.
void BackwardPass::State::push(Device device, Task&& task) {
  DeviceQueue& target = queue(device);
  target.ready.push_back(std::move(task));
  std::push_heap(target.ready.begin(), target.ready.end());
}

// The most urgent ready task of a device, which is busy from now on; nothing if there is none or
// another thread is at it.
std::optional<Task> BackwardPass::State::take(DeviceQueue& queue) {
  const auto lock = guard();
  if (finished() || queue.busy || queue.ready.empty()) return {};
  std::pop_heap(queue.ready.begin(), queue.ready.end());
  std::optional<Task> task(std::move(queue.ready.back()));
  queue.ready.pop_back();
  queue.busy = true;
  ++running;
  return task;
}

// Runs one ready task of a device; false if it has none to take.
bool BackwardPass::State::run_one(DeviceQueue& queue) {
  std::optional<Task> task = take(queue);
  if (!task) return false;
  std::exception_ptr failure;
  try {
    execute(*task);
  } catch (...) {
    failure = std::current_exception();
  }
  task.reset();
  const auto lock = guard();
  queue.busy = false;
  --running;
  --outstanding;
  if (failure && !has_failed) error = std::move(failure);
  has_failed = has_failed || error;
  if (has_several_devices()) changed.add(1);
  return true;
}

void BackwardPass::State::execute(Task& task) {
  if (task.leaf.defined()) {
    deliver_to_leaf(task.leaf, std::move(task.grads[0]));
    return;
  }
  Node& node = *task.node;
  const bool any = std::any_of(task.grads.begin(), task.grads.end(),
                               [](const Tensor& grad) { return grad.defined(); });
  Gradients grads;
  if (any) {
    trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, node.name());
    // Of one device, whoever called backward() times the whole pass; of several, each times its
    // own.
    std::optional<runtime::DeviceSpan> on_device;
    if (has_several_devices()) {
      on_device.emplace(runtime::logical_device(node.device()).compute_stream(),
                        trace::Lane::compute, trace::Category::op, node.name(), 0,
                        node.device().index);
    }
    grads = node.backward(task.grads);
    // Now there is all that was saved for it, and what it made.
    if (trace::recording()) [[unlikely]] {
      const int track = has_several_devices() ? node.device().index : trace::current_track();
      runtime::sample_memory(runtime::logical_device(node.device()), track);
    }
  } else {
    grads.resize(node.num_inputs());
  }
  task.grads.clear();
  if (graph == Graph::release) {
    node.release_saved();
    node.released_ = true;
  }
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (node.edges_[i].is_wanted()) deliver(node.edges_[i], std::move(grads[i]), node.device());
  }
}

// Hands the gradient of an input on: to a leaf, or to the node that made the input.
void BackwardPass::State::deliver(const Edge& edge, Tensor grad, Device here) {
  if (edge.leaf.defined()) {
    if (edge.device == here) {
      deliver_to_leaf(edge.leaf, std::move(grad));
      return;
    }
    const auto lock = guard();
    ++outstanding;
    push(edge.device, {nullptr, {std::move(grad)}, edge.leaf});
    changed.add(1);
    return;
  }
  const auto lock = guard();
  Arrivals& arrived = arrivals[edge.node.get()];
  arrived.grads.resize(edge.node->num_outputs());
  Tensor& sum = arrived.grads[edge.output_index];
  if (!sum.defined()) {
    sum = std::move(grad);
  } else if (grad.defined()) {
    // The first gradient may be shared with somebody, so the sum gets memory of its own.
    Tensor total = Tensor::empty(sum.shape(), sum.dtype(), sum.device());
    total.backend().add(total.stream(), sum.view(), grad.view(), total.view());
    sum = std::move(total);
  }
  if (--arrived.missing == 0) push(edge.node->device(), {edge.node, std::move(arrived.grads), {}});
}

// On the line of work of the leaf's device. An undefined gradient counts as arrived.
void BackwardPass::State::deliver_to_leaf(const Variable& leaf, Tensor grad) {
  const bool is_defined = grad.defined();
  if (audit_pass != 0 && is_defined) [[unlikely]] {
    audit::note_arrival(audit_pass, leaf.identity(), audit::values_of(grad),
                        audit::values_of(leaf.grad()), grad.num_elements());
  }
  if (is_defined) add_leaf_gradient(leaf, std::move(grad));
  bool is_last = false;
  {
    const auto lock = guard();
    LeafArrivals& arrived = leaf_arrivals[leaf.identity()];
    arrived.any |= is_defined;
    is_last = --arrived.missing == 0 && arrived.any;
  }
  if (is_last) call_leaf_hooks(leaf);
}

// A device's line of work: runs its tasks until the pass is over.
void BackwardPass::State::work(Device device) {
  ThreadContextScope scope(context);
  BackwardPass::State* outer = std::exchange(running_pass, this);
  DeviceQueue& own = [&]() -> DeviceQueue& {
    const auto lock = guard();
    return queue(device);
  }();
  while (true) {
    const std::uint32_t seen = changed.load();
    if (run_one(own)) continue;
    {
      const auto lock = guard();
      if (finished()) break;
    }
    // Nobody else works on the other devices then.
    if (context.issue == Issue::by_caller && help_another_device()) continue;
    trace::ScopedSpan span(trace::Lane::host, trace::Category::wait, "wait for other devices");
    if (runtime::spin_until([&] { return changed.load() != seen; })) continue;
    if (help_another_device()) continue;
    changed.wait_while_equal(seen);
  }
  running_pass = outer;
}

// Takes one task of a device whose own worker is not at it: it may be busy with somebody else's
// work, which in turn may be waiting for this pass.
bool BackwardPass::State::help_another_device() {
  DeviceQueue* found = nullptr;
  {
    const auto lock = guard();
    for (DeviceQueue& queue : queues) {
      if (!queue.busy && !queue.ready.empty()) found = &queue;
    }
  }
  if (found == nullptr) return false;
  trace::TrackScope track(found->device.index);
  return run_one(*found);
}

BackwardPass::State::Remains BackwardPass::State::take_remains() {
  const auto lock = guard();
  Remains remains{std::move(error), std::move(at_end), {}};
  for (DeviceQueue& queue : queues) {
    std::move(queue.ready.begin(), queue.ready.end(), std::back_inserter(remains.not_run));
    queue.ready.clear();
  }
  return remains;
}

Device BackwardPass::State::begin(const Variable& root, Tensor grad) {
  if (root.is_leaf()) {
    outstanding = 1;
    leaf_arrivals[root.identity()].missing = 1;
    push(root.device(), {nullptr, {std::move(grad)}, root});
    return root.device();
  }
  const std::shared_ptr<Node>& node = root.node();
  discover(node);
  Gradients grads(node->num_outputs());
  grads[root.output_index()] = std::move(grad);
  push(node->device(), {node, std::move(grads), {}});
  return node->device();
}

}  // namespace lockstep
