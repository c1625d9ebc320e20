#include "engine/autograd/backward_pass.h"

#include <map>
#include <mutex>
#include <tuple>

#include "engine/audit/losses.h"
#include "engine/audit/switch.h"
#include "engine/autograd/backward_state.h"
#include "engine/core/error.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/span.h"

namespace lockstep {

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

BackwardPass::BackwardPass(const Variable& root, Tensor grad, Graph graph)
    : root_(root), grad_(std::move(grad)), state_(std::make_shared<State>()) {
  require(root.requires_grad(), ErrorCode::State, "backward",
          "this variable does not depend on anything that requires a gradient");
  if (!grad_.defined()) {
    if (root.value().num_elements() != 1) {
      fail(ErrorCode::Shape, "backward",
           "a gradient is needed for shape {}; only a single element has the default 1",
           to_string(root.shape()));
    }
    grad_ = kept_scalar(1, root.dtype(), root.device());
    if (root.shape() != grad_.shape()) grad_ = grad_.reshape(root.shape());
  }
  require_same_shape("backward", root.value(), grad_);
  require_same_device("backward", {&root.value(), &grad_});
  require_same_dtype("backward", {&root.value(), &grad_});
  state_->graph = graph;
  state_->context = thread_context();
  state_->context.grad_enabled = false;
  if (audit::is_on()) state_->audit_pass = audit::begin_pass();
}

void BackwardPass::run() {
  State& state = *state_;
  const Device home = state.begin(root_, grad_);
  for (const DeviceQueue& queue : state.queues) {
    if (queue.device == home || state.context.issue == Issue::by_caller) continue;
    runtime::logical_device(queue.device).worker().post([shared = state_, device = queue.device] {
      trace::TrackScope track(device.index);
      shared->work(device);
    });
  }
  state.work(home);
  while (true) {  // after an error other devices may still be inside a task
    const std::uint32_t seen = state.changed.load();
    {
      const auto lock = state.guard();
      if (state.running == 0) break;
    }
    state.changed.wait_while_equal(seen);
  }
  // A worker may let go of the state later; the caller's thread takes what is inside with it.
  const State::Remains remains = state.take_remains();
  if (remains.error) std::rethrow_exception(remains.error);
  for (const auto& finish : remains.at_end) finish();
}

void on_backward_end(std::function<void()> finish) {
  BackwardPass::State* running = running_backward_pass();
  require(running != nullptr, ErrorCode::State, "on_backward_end",
          "no backward pass is running here");
  require(finish != nullptr, ErrorCode::Usage, "on_backward_end", "there is no function to call");
  const auto lock = running->guard();
  running->at_end.push_back(std::move(finish));
}

}  // namespace lockstep
