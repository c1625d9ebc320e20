#include "engine/autograd/backward.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"

namespace lockstep {

// One call of backward(): which gradients are still to arrive, and what is ready on which device.
class BackwardPass : public std::enable_shared_from_this<BackwardPass> {
 public:
  explicit BackwardPass(Graph graph) : graph_(graph), context_(thread_context()) {
    context_.grad_enabled = false;
    static std::atomic<std::uint64_t> num_passes{0};
    number_ = ++num_passes;
  }

  void run(const Variable& root, Tensor grad);
  void call_at_end(std::function<void()> finish) {
    const std::lock_guard lock(mutex_);
    at_end_.push_back(std::move(finish));
  }
  std::uint64_t number() const { return number_; }

 private:
  // A node with its gradients, or a gradient for a leaf that another device computed.
  struct Task {
    std::shared_ptr<Node> node;
    Gradients grads;
    Variable leaf;

    // Leaves first: their hooks start communication.
    std::uint64_t priority() const { return node ? node->sequence() : ~std::uint64_t{0}; }
    bool operator<(const Task& other) const { return priority() < other.priority(); }
  };
  // The ready tasks of one device. At most one thread works on a device at a time.
  struct DeviceQueue {
    Device device;
    std::vector<Task> ready = {};  // a heap
    bool busy = false;
  };
  // The gradients that are still to arrive at a node, or at a leaf, which adds them up by itself.
  struct Arrivals {
    std::size_t missing = 0;
    Gradients grads = {};  // of a node's outputs
    bool any = false;      // a leaf got one
  };

  bool is_over() const { return outstanding_ == 0 || error_; }  // REQUIRES: the lock
  bool has_several_devices() const { return queues_.size() > 1; }

  Device begin(const Variable& root, Tensor grad);
  void discover(const std::shared_ptr<Node>& root);
  DeviceQueue& queue(Device device);
  void push(Device device, Task&& task);
  bool run_one(DeviceQueue& queue);
  bool help_another_device();
  void execute(Task& task);
  Gradients run_node(Node& node, const Gradients& grads);
  void deliver(const Edge& edge, Tensor grad, Device here);
  void deliver_to_leaf(const Variable& leaf, Tensor grad);
  void work(Device device);

  Graph graph_;
  ThreadContext context_;
  std::uint64_t number_ = 0;         // counts the process's passes from 1
  std::vector<DeviceQueue> queues_;  // which there are is settled before any thread works

  std::mutex mutex_;                                    // guards the queues' insides and all below
  std::unordered_map<const void*, Arrivals> arrivals_;  // by node, or a leaf's identity()
  std::size_t outstanding_ = 0;                         // nodes and leaf tasks not yet done
  std::size_t running_ = 0;                             // tasks that a thread is working on
  std::exception_ptr error_;                            // the first one
  std::vector<std::function<void()>> at_end_;
  runtime::WaitWord changed_;  // counts pushes, ends and errors
};

namespace {

// The pass that the calling thread is inside of, or nullptr.
thread_local BackwardPass* running_pass = nullptr;

}  // namespace

// Prepares the first task and returns its device.
Device BackwardPass::begin(const Variable& root, Tensor grad) {
  if (root.is_leaf()) {
    outstanding_ = 1;
    arrivals_[root.identity()].missing = 1;
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

// Counts, for every node that backward will reach, the gradients that will arrive there.
void BackwardPass::discover(const std::shared_ptr<Node>& root) {
  std::vector<const Node*> pending{root.get()};
  arrivals_[root.get()];
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    require(!node->released_, ErrorCode::State, "backward",
            "the graph was released by an earlier backward (at {}); "
            "pass Graph::retain to the first call to go through it twice",
            node->name());
    ++outstanding_;
    queue(node->device());
    for (const Edge& edge : node->edges_) {
      if (edge.leaf.defined()) {
        queue(edge.device);
        ++arrivals_[edge.leaf.identity()].missing;
      }
      if (!edge.node) continue;
      const auto [entry, is_new] = arrivals_.try_emplace(edge.node.get());
      ++entry->second.missing;
      if (is_new) pending.push_back(edge.node.get());
    }
  }
}

BackwardPass::DeviceQueue& BackwardPass::queue(Device device) {
  for (DeviceQueue& queue : queues_) {
    if (queue.device == device) return queue;
  }
  return queues_.emplace_back(DeviceQueue{device});
}

// REQUIRES: the lock, once threads work.
void BackwardPass::push(Device device, Task&& task) {
  DeviceQueue& target = queue(device);
  target.ready.push_back(std::move(task));
  std::push_heap(target.ready.begin(), target.ready.end());
}

// Runs the most urgent ready task of a device; false if there is none or another thread is at it.
bool BackwardPass::run_one(DeviceQueue& queue) {
  std::unique_lock lock(mutex_);
  if (is_over() || queue.busy || queue.ready.empty()) return false;
  std::pop_heap(queue.ready.begin(), queue.ready.end());
  std::optional<Task> task(std::move(queue.ready.back()));
  queue.ready.pop_back();
  queue.busy = true;
  ++running_;
  lock.unlock();
  std::exception_ptr failure;
  try {
    execute(*task);
  } catch (...) {
    failure = std::current_exception();
  }
  task.reset();
  lock.lock();
  queue.busy = false;
  --running_;
  --outstanding_;
  if (failure && !error_) error_ = std::move(failure);
  if (has_several_devices()) changed_.add(1);
  return true;
}

void BackwardPass::execute(Task& task) {
  if (task.leaf.defined()) return deliver_to_leaf(task.leaf, std::move(task.grads[0]));
  Node& node = *task.node;
  const bool any = std::any_of(task.grads.begin(), task.grads.end(),
                               [](const Tensor& grad) { return grad.defined(); });
  Gradients grads = any ? run_node(node, task.grads) : Gradients(node.num_inputs());
  task.grads.clear();
  if (graph_ == Graph::release) {
    node.release_saved();
    node.released_ = true;
  }
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (node.edges_[i].is_wanted()) deliver(node.edges_[i], std::move(grads[i]), node.device());
  }
}

Gradients BackwardPass::run_node(Node& node, const Gradients& grad_outputs) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, node.name());
  // The caller of backward() times a pass over one device; over several, each node times itself.
  std::optional<runtime::DeviceSpan> on_device;
  if (has_several_devices()) {
    on_device.emplace(runtime::logical_device(node.device()).compute_stream(), trace::Lane::compute,
                      trace::Category::op, node.name(), 0, node.device().index);
  }
  Gradients grads = node.backward(grad_outputs);
  // Memory is at its highest now: what was saved for the node, and what it made.
  if (trace::recording()) [[unlikely]] {
    const int track = has_several_devices() ? node.device().index : trace::current_track();
    runtime::sample_memory(runtime::logical_device(node.device()), track);
  }
  return grads;
}

// Hands the gradient of an input on: to a leaf, or to the node that made the input.
void BackwardPass::deliver(const Edge& edge, Tensor grad, Device here) {
  if (edge.leaf.defined() && edge.device == here) {
    return deliver_to_leaf(edge.leaf, std::move(grad));
  }
  const std::lock_guard lock(mutex_);
  if (edge.leaf.defined()) {
    ++outstanding_;
    push(edge.device, {nullptr, {std::move(grad)}, edge.leaf});
    changed_.add(1);
    return;
  }
  Arrivals& arrived = arrivals_[edge.node.get()];
  arrived.grads.resize(edge.node->num_outputs());
  Tensor& sum = arrived.grads[edge.output_index];
  if (!sum.defined()) {
    sum = std::move(grad);
  } else if (grad.defined()) {
    // Another node may hold the first gradient too, so the sum gets memory of its own.
    Tensor total = Tensor::empty(sum.shape(), sum.dtype(), sum.device());
    total.backend().add(total.stream(), sum.view(), grad.view(), total.view());
    sum = std::move(total);
  }
  if (--arrived.missing == 0) push(edge.node->device(), {edge.node, std::move(arrived.grads), {}});
}

// On the line of work of the leaf's device. An undefined gradient counts as arrived.
void BackwardPass::deliver_to_leaf(const Variable& leaf, Tensor grad) {
  const bool is_defined = grad.defined();
  if (trace::Observer* observer = trace::observer(); observer != nullptr && is_defined) {
    observer->leaf_gradient({number_, leaf.identity(), grad.num_elements(),
                             trace::host_values(grad), trace::host_values(leaf.grad())});
  }
  if (is_defined) add_leaf_gradient(leaf, std::move(grad));
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    Arrivals& arrived = arrivals_[leaf.identity()];
    arrived.any |= is_defined;
    is_last = --arrived.missing == 0 && arrived.any;
  }
  if (is_last) call_leaf_hooks(leaf);
}

// A device's line of work: runs its tasks until the pass is over.
void BackwardPass::work(Device device) {
  ThreadContextScope scope(context_);
  BackwardPass* const outer = std::exchange(running_pass, this);
  DeviceQueue& own = queue(device);
  while (true) {
    const std::uint32_t seen = changed_.load();
    if (run_one(own)) continue;
    {
      const std::lock_guard lock(mutex_);
      if (is_over()) break;
    }
    // Then no other thread works on the other devices.
    if (context_.issue == Issue::by_caller && help_another_device()) continue;
    trace::ScopedSpan span(trace::Lane::host, trace::Category::wait, "wait for other devices");
    if (runtime::spin_until([&] { return changed_.load() != seen; })) continue;
    if (help_another_device()) continue;
    changed_.wait_while_equal(seen);
  }
  running_pass = outer;
}

// Takes one task of a device whose own worker is not at it: it may be busy with another pass,
// which in turn may be waiting for this one.
bool BackwardPass::help_another_device() {
  DeviceQueue* found = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (DeviceQueue& queue : queues_) {
      if (!queue.busy && !queue.ready.empty()) found = &queue;
    }
  }
  if (found == nullptr) return false;
  trace::TrackScope track(found->device.index);
  return run_one(*found);
}

void BackwardPass::run(const Variable& root, Tensor grad) {
  const Device home = begin(root, std::move(grad));
  for (const DeviceQueue& queue : queues_) {
    if (queue.device == home || context_.issue == Issue::by_caller) continue;
    // A worker may look at the pass after run() has returned.
    runtime::logical_device(queue.device)
        .worker()
        .post([self = shared_from_this(), device = queue.device] {
          trace::TrackScope track(device.index);
          self->work(device);
        });
  }
  work(home);
  std::vector<std::function<void()>> at_end;
  while (true) {  // after an error other devices may still be inside a task
    const std::uint32_t seen = changed_.load();
    {
      const std::lock_guard lock(mutex_);
      if (running_ == 0) {
        // A worker lets go of the pass later, and must not keep what is inside.
        for (DeviceQueue& queue : queues_) queue.ready.clear();
        arrivals_.clear();
        at_end.swap(at_end_);
        break;
      }
    }
    changed_.wait_while_equal(seen);
  }
  if (error_) std::rethrow_exception(error_);
  for (const auto& call : at_end) call();
}

void run_backward(const Variable& root, Tensor grad, Graph graph) {
  require(root.requires_grad(), ErrorCode::State, "backward",
          "this variable does not depend on anything that requires a gradient");
  if (!grad.defined()) {
    if (root.value().num_elements() != 1) {
      fail(ErrorCode::Shape, "backward",
           "a gradient is needed for shape {}; only a single element has the default 1",
           to_string(root.shape()));
    }
    grad = kept_scalar(1, root.dtype(), root.device());
    if (root.shape() != grad.shape()) grad = grad.reshape(root.shape());
  }
  require_same_shape("backward", root.value(), grad);
  require_same_device("backward", {&root.value(), &grad});
  require_same_dtype("backward", {&root.value(), &grad});
  std::make_shared<BackwardPass>(graph)->run(root, std::move(grad));
}

// Not kept while a step is captured, since what a graph writes is there only after a launch.
Tensor kept_scalar(double value, DType dtype, Device device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& scalars = *new std::map<std::tuple<Device, DType, double>, Tensor>;
  const std::lock_guard lock(mutex);
  const std::tuple key(device, dtype, value);
  const auto found = scalars.find(key);
  if (found != scalars.end()) return found->second;
  const Tensor scalar = Tensor::full({}, value, dtype, device);
  if (!runtime::is_capturing_step()) scalars.emplace(key, scalar);
  return scalar;
}

void on_backward_end(std::function<void()> finish) {
  require(running_pass != nullptr, ErrorCode::State, "on_backward_end",
          "no backward pass is running here");
  require(finish != nullptr, ErrorCode::Usage, "on_backward_end", "there is no function to call");
  running_pass->call_at_end(std::move(finish));
}

std::uint64_t running_pass_number() {
  return running_pass == nullptr ? 0 : running_pass->number();
}

}  // namespace lockstep
