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
#include "kernels/calls.h"

namespace lockstep {

// One call of backward(): the gradients still to arrive, and the tasks ready to run.
class BackwardPass : public std::enable_shared_from_this<BackwardPass> {
 public:
  explicit BackwardPass(Graph graph) : graph_(graph), context_(thread_context()) {
    static std::atomic<std::uint64_t> num_passes{0};
    context_.grad_enabled = false;
    number_ = ++num_passes;
  }

  void run(const Variable& root, Tensor grad);
  void call_at_end(std::function<void()> finish) {
    const std::lock_guard lock(mutex_);
    at_end_.push_back(std::move(finish));
  }
  std::uint64_t number() const { return number_; }

 private:
  // A node with the gradients of its outputs, or a leaf's gradient that another device computed.
  struct Task {
    Device device;
    std::shared_ptr<Node> node;
    Gradients grads;
    Variable leaf;

    // Leaves come first: their hooks start communication.
    std::uint64_t priority() const { return node ? node->sequence() : ~std::uint64_t{0}; }
  };
  // The gradients still to arrive at a node, or at a leaf, which adds them up itself.
  struct Arrivals {
    std::size_t missing = 0;
    Gradients grads = {};  // of a node's outputs
    bool any = false;      // true if a leaf got one
  };

  static const void* target_of(const Edge& edge) {
    return edge.node ? edge.node.get() : edge.leaf.identity();
  }
  bool is_over() {
    const std::lock_guard lock(mutex_);
    return outstanding_ == 0 || has_failed_;
  }

  std::exception_ptr take_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(error_, nullptr);
  }

  void expect_gradients(const Edge& root);
  void work(Device own);
  bool run_one(std::optional<Device> only);
  void execute(Task& task);
  Gradients run_node(Node& node, const Gradients& grad_outputs);
  void deliver(const Edge& edge, Tensor grad, std::optional<Device> here);
  void deliver_to_leaf(const Variable& leaf, Tensor grad);
  void wait_for_running_tasks();

  Graph graph_;
  ThreadContext context_;
  std::uint64_t number_ = 0;     // counts the process's passes from 1
  std::vector<Device> devices_;  // all devices that the pass uses

  std::mutex mutex_;                                    // guards the members below
  std::unordered_map<const void*, Arrivals> arrivals_;  // by target_of() an edge
  std::vector<Task> ready_;
  std::vector<Device> busy_;     // devices on which a thread runs a task: one at a time on each
  std::size_t outstanding_ = 0;  // nodes and leaf tasks not yet done
  bool has_failed_ = false;
  std::exception_ptr error_;  // the first one
  std::vector<std::function<void()>> at_end_;
  runtime::WaitWord changed_;  // counts finished tasks where there are several devices
};

namespace {

// The pass that the calling thread is running, or nullptr.
thread_local BackwardPass* running_pass = nullptr;

}  // namespace

void BackwardPass::run(const Variable& root, Tensor grad) {
  const Edge start = edge_to(root);
  const Device home = start.node ? start.node->device() : start.device;
  expect_gradients(start);
  deliver(start, std::move(grad), std::nullopt);
  const auto has_worker = [&](Device device) {
    return device != home && context_.issue == Issue::by_workers;
  };
  for (const Device device : devices_) {
    if (has_worker(device)) runtime::logical_device(device).worker().start();  // before any task
  }
  for (const Device device : devices_) {
    if (!has_worker(device)) continue;
    // A worker may look at the pass after run() has returned.
    runtime::logical_device(device).worker().post([self = shared_from_this(), device] {
      const trace::TrackScope track(device.index);
      self->work(device);
    });
  }
  work(home);
  wait_for_running_tasks();
  const auto at_end = std::exchange(at_end_, {});
  // A worker that still looks at the pass must not be the last to hold the error.
  if (const auto error = take_error()) std::rethrow_exception(error);
  for (const auto& call : at_end) call();
}

// Counts, for every node and leaf that backward will reach, the gradients that will arrive there.
void BackwardPass::expect_gradients(const Edge& root) {
  std::vector<const Edge*> pending{&root};
  while (!pending.empty()) {
    const Edge& edge = *pending.back();
    pending.pop_back();
    if (!edge.is_wanted() || ++arrivals_[target_of(edge)].missing > 1) continue;
    const Device device = edge.node ? edge.node->device() : edge.device;
    if (std::ranges::find(devices_, device) == devices_.end()) devices_.push_back(device);
    if (!edge.node) continue;
    require(!edge.node->released_, ErrorCode::State, "backward",
            "the graph was released by an earlier backward (at {}); "
            "pass Graph::retain to the first call to go through it twice",
            edge.node->name());
    ++outstanding_;
    for (const Edge& next : edge.node->edges_) pending.push_back(&next);
  }
}

// A device's line of work: runs its tasks until the pass is over. If it is idle, it takes a task of
// another device, because that device's worker may be busy with another pass, which may be waiting
// for this one.
void BackwardPass::work(Device own) {
  const ThreadContextScope scope(context_);
  BackwardPass* const outer = std::exchange(running_pass, this);
  for (std::uint32_t seen = changed_.load(); !is_over(); seen = changed_.load()) {
    if (run_one(own)) continue;
    if (context_.issue == Issue::by_caller && run_one({})) continue;  // no other thread will
    const trace::ScopedSpan span(trace::Lane::host, trace::Category::wait,
                                 "wait for other devices");
    if (runtime::spin_until([&] { return changed_.load() != seen; })) continue;
    if (run_one({})) continue;
    changed_.wait_while_equal(seen);
  }
  running_pass = outer;
}

// Runs the most urgent ready task, of this device only or of any. Returns false if there is none on
// a device that no other thread uses.
bool BackwardPass::run_one(std::optional<Device> only) {
  std::unique_lock lock(mutex_);
  auto best = ready_.end();
  for (auto task = ready_.begin(); task != ready_.end() && !has_failed_; ++task) {
    if (only && task->device != *only) continue;
    if (std::ranges::find(busy_, task->device) != busy_.end()) continue;
    if (best == ready_.end() || task->priority() > best->priority()) best = task;
  }
  if (best == ready_.end()) return false;
  std::optional<Task> task(std::move(*best));
  const Device device = task->device;
  ready_.erase(best);
  busy_.push_back(device);
  lock.unlock();
  std::exception_ptr failure;
  try {
    execute(*task);
  } catch (...) {
    failure = std::current_exception();
  }
  task.reset();
  lock.lock();
  std::erase(busy_, device);
  --outstanding_;
  if (failure && !std::exchange(has_failed_, true)) error_ = std::move(failure);
  if (devices_.size() > 1) changed_.add(1);
  return true;
}

void BackwardPass::execute(Task& task) {
  if (task.leaf.defined()) return deliver_to_leaf(task.leaf, std::move(task.grads[0]));
  Node& node = *task.node;
  const bool any = std::ranges::any_of(task.grads, &Tensor::defined);
  Gradients grads = any ? run_node(node, task.grads) : Gradients(node.num_inputs());
  task.grads.clear();
  if (graph_ == Graph::release) {
    node.saved_.clear();
    node.released_ = true;
  }
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (node.edges_[i].is_wanted()) deliver(node.edges_[i], std::move(grads[i]), node.device());
  }
}

Gradients BackwardPass::run_node(Node& node, const Gradients& grad_outputs) {
  const bool is_one_of_several = devices_.size() > 1;
  const trace::TrackScope track(is_one_of_several ? node.device().index : trace::current_track());
  const runtime::WorkSpan span(runtime::logical_device(node.device()).compute_stream(),
                               trace::Lane::compute, trace::Category::op, node.name());
  return node.backward(grad_outputs);
}

// Hands the gradient of an input to a leaf, or to the node that made the input. here: the device
// whose line of work calls; nullopt before there is one.
void BackwardPass::deliver(const Edge& edge, Tensor grad, std::optional<Device> here) {
  if (edge.leaf.defined() && here == edge.device) {
    return deliver_to_leaf(edge.leaf, std::move(grad));
  }
  const std::lock_guard lock(mutex_);
  if (edge.leaf.defined()) {
    ++outstanding_;
    ready_.push_back({edge.device, nullptr, {std::move(grad)}, edge.leaf});
    changed_.add(1);
    return;
  }
  Arrivals& arrived = arrivals_[edge.node.get()];
  arrived.grads.resize(edge.node->num_outputs());
  Tensor& sum = arrived.grads[edge.output_index];
  if (!sum.defined()) {
    sum = std::move(grad);
  } else if (grad.defined()) {
    // Another node may hold the first gradient too, so the sum gets its own memory.
    Tensor total = Tensor::empty(sum.shape(), sum.dtype(), sum.device());
    total.backend().add(total.stream(), {sum.view(), grad.view(), total.view()});
    sum = std::move(total);
  }
  if (--arrived.missing == 0) {
    ready_.push_back({edge.node->device(), edge.node, std::move(arrived.grads), {}});
  }
}

// Runs on the line of work of the leaf's device. An undefined gradient counts as arrived.
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

// After an error other devices may still be running a task. A worker lets go of the pass later, and
// must not keep its contents alive.
void BackwardPass::wait_for_running_tasks() {
  while (true) {
    const std::uint32_t seen = changed_.load();
    {
      const std::lock_guard lock(mutex_);
      if (busy_.empty()) {
        ready_.clear();
        arrivals_.clear();
        return;
      }
    }
    changed_.wait_while_equal(seen);
  }
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

// It is not kept while a step is captured, because a graph's writes only happen at a launch.
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
