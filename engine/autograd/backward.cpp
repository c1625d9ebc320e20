#include "engine/autograd/backward.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/autograd/device_tasks.h"
#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"
#include "kernels/calls.h"

namespace lockstep {

// One call of backward(): the gradients that are still to arrive.
class BackwardPass {
 public:
  explicit BackwardPass(Graph graph) : graph_(graph) {
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
  // The gradients still to arrive at a node, or at a leaf, which adds them up itself.
  struct Arrivals {
    std::size_t missing = 0;
    Gradients grads = {};  // for a node's outputs
    bool any = false;      // true if a leaf got one
  };

  std::vector<Device> expect_gradients(const Edge& root);
  void run_node(Node& node, Gradients& grad_outputs);
  void deliver(const Edge& edge, Tensor grad, std::optional<Device> here);
  void deliver_to_leaf(const Variable& leaf, Tensor grad);

  Graph graph_;
  std::uint64_t number_ = 0;  // counts the process's passes from 1
  std::shared_ptr<DeviceTasks> tasks_;

  std::mutex mutex_;                                    // guards the members below
  std::unordered_map<const void*, Arrivals> arrivals_;  // by target_of() an edge
  std::vector<std::function<void()>> at_end_;
};

namespace {

// The pass that the calling thread is running, or nullptr.
thread_local BackwardPass* running_pass = nullptr;

class RunningScope {
 public:
  explicit RunningScope(BackwardPass* pass) : outer_(std::exchange(running_pass, pass)) {}
  ~RunningScope() { running_pass = outer_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  BackwardPass* outer_;
};

const void* target_of(const Edge& edge) {
  return edge.node ? edge.node.get() : edge.leaf.identity();
}

}  // namespace

void BackwardPass::run(const Variable& root, Tensor grad) {
  const Edge start = edge_to(root);
  tasks_ = std::make_shared<DeviceTasks>(expect_gradients(start));
  deliver(start, std::move(grad), std::nullopt);
  tasks_->run(start.node ? start.node->device() : start.device);
  for (const auto& call : at_end_) call();
}

// Counts, for every node and leaf that backward will reach, the gradients that will arrive there.
// Returns their devices.
std::vector<Device> BackwardPass::expect_gradients(const Edge& root) {
  std::vector<Device> devices;
  std::vector<const Edge*> pending{&root};
  while (!pending.empty()) {
    const Edge& edge = *pending.back();
    pending.pop_back();
    if (!edge.is_wanted() || ++arrivals_[target_of(edge)].missing > 1) continue;
    const Device device = edge.node ? edge.node->device() : edge.device;
    if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
    if (!edge.node) continue;
    require(!edge.node->released_, ErrorCode::State, "backward",
            "the graph was released by an earlier backward (at {}); "
            "pass Graph::retain to the first call to go through it twice",
            edge.node->name());
    for (const Edge& next : edge.node->edges_) pending.push_back(&next);
  }
  return devices;
}

// Hands the gradient of an input to a leaf, or to the node that made the input, which runs when all
// gradients of its outputs are there. here: the device whose line of work calls; nullopt before
// there is one.
void BackwardPass::deliver(const Edge& edge, Tensor grad, std::optional<Device> here) {
  if (edge.leaf.defined()) {
    if (here == edge.device) return deliver_to_leaf(edge.leaf, std::move(grad));
    // Leaves come first: their hooks start communication.
    tasks_->add({edge.device, ~std::uint64_t{0},
                 [this, leaf = edge.leaf, grad = std::move(grad)]() mutable {
                   const RunningScope scope(this);
                   deliver_to_leaf(leaf, std::move(grad));
                 }});
    return;
  }
  const std::lock_guard lock(mutex_);
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
  if (--arrived.missing > 0) return;
  tasks_->add({edge.node->device(), edge.node->sequence(),
               [this, node = edge.node, grads = std::move(arrived.grads)]() mutable {
                 const RunningScope scope(this);
                 run_node(*node, grads);
               }});
}

void BackwardPass::run_node(Node& node, Gradients& grad_outputs) {
  Gradients grads(node.num_inputs());
  if (std::ranges::any_of(grad_outputs, &Tensor::defined)) {
    const runtime::WorkSpan span(runtime::logical_device(node.device()).compute_stream(),
                                 trace::Lane::compute, trace::Category::op, node.name());
    if (trace::Observer* observer = trace::observer(); observer != nullptr && node.observed_) {
      observer->backward(number_, node.observed_, trace::host_values(grad_outputs[0]));
    }
    grads = node.backward(grad_outputs);
  }
  grad_outputs.clear();
  if (graph_ == Graph::release) {
    node.saved_.clear();
    node.released_ = true;
  }
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (node.edges_[i].is_wanted()) deliver(node.edges_[i], std::move(grads[i]), node.device());
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

void run_backward(const Variable& root, Tensor grad, Graph graph) {
  require(root.requires_grad(), ErrorCode::State, "backward",
          "this variable does not depend on anything that requires a gradient");
  if (!grad.defined()) {
    if (root.value().num_elements() != 1) {
      fail(ErrorCode::Shape, "backward",
           "a gradient is needed for shape {}; only a single element has the default 1",
           to_string(root.shape()));
    }
    grad = Tensor::cached_scalar(1, root.dtype(), root.device());
    if (root.shape() != grad.shape()) grad = grad.reshape(root.shape());
  }
  require_same_shape("backward", root.value(), grad);
  require_same_device("backward", {&root.value(), &grad});
  require_same_dtype("backward", {&root.value(), &grad});
  BackwardPass(graph).run(root, std::move(grad));
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
