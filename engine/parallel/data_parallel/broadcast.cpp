#include "engine/parallel/data_parallel/broadcast.h"

#include <array>

#include "engine/autograd/node.h"
#include "engine/parallel/data_parallel/for_each_device.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

// Outputs are ordered by device, then by variable: output d * num_inputs() + i.
class BroadcastNode final : public Node {
 public:
  const char* name() const override { return "Broadcast"; }

  Gradients backward(const Gradients& grad_outputs) override {
    Gradients sums(num_inputs());
    std::vector<Tensor> copies;
    std::vector<ConstTensorView> views;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!wants_gradient(i)) continue;
      copies.clear();
      views.clear();
      for (std::size_t k = i; k < grad_outputs.size(); k += num_inputs()) {
        if (!grad_outputs[k].defined()) continue;
        copies.push_back(grad_outputs[k].to(readable_on(grad_outputs[k].device())));
        views.push_back(copies.back().view());
        if (k >= num_inputs()) {
          trace::count_collective(grad_outputs[k].device().index, "reduce_gradients",
                                  grad_outputs[k].num_bytes());
        }
      }
      if (views.empty()) continue;  // no replica used this parameter
      sums[i] = gradient_buffer(i);
      sums[i].backend().ordered_sum(sums[i].stream(), views, 1.0, sums[i].view());
    }
    return sums;
  }
  void release_saved() override {}

 private:
  // Where device() can read a gradient: CPU devices read each other's memory, others need a copy.
  Device readable_on(Device from) const {
    const bool both_cpu = from.type == DeviceType::cpu && device().type == DeviceType::cpu;
    return both_cpu ? from : device();
  }
};

// Consecutive variables whose sizes add up to a piece; frozen ones are not mixed with trained ones.
std::vector<std::vector<Variable>> pieces_of(const std::vector<Variable>& variables) {
  std::vector<std::vector<Variable>> pieces;
  std::size_t num_bytes = 0;
  for (const Variable& variable : variables) {
    const bool fits = !pieces.empty() && num_bytes < kBroadcastPieceBytes &&
                      pieces.back().back().requires_grad() == variable.requires_grad();
    if (!fits) {
      pieces.emplace_back();
      num_bytes = 0;
    }
    pieces.back().push_back(variable);
    num_bytes += variable.value().num_bytes();
  }
  return pieces;
}

}  // namespace

std::vector<std::vector<Variable>> broadcast_coalesced(const std::vector<Variable>& variables,
                                                       const std::vector<Device>& devices) {
  std::vector<std::vector<Variable>> copies(devices.size());
  std::vector<std::vector<Tensor>> tensors(devices.size());
  std::size_t num_bytes = 0;
  for (const Variable& variable : variables) {
    tensors[0].push_back(variable.value());
    num_bytes += variable.value().num_bytes();
  }
  trace::ScopedSpan span(trace::Lane::copy, trace::Category::copy, "replicate",
                         num_bytes * (devices.size() - 1));
  trace::count_collective(devices[0].index, "replicate", num_bytes * (devices.size() - 1));
  for_each_device(devices, [&](std::size_t d) {
    if (d == 0) return;
    for (const Variable& variable : variables) {
      tensors[d].push_back(variable.value().to(devices[d]));
    }
  });

  std::size_t first = 0;
  for (const std::vector<Variable>& piece : pieces_of(variables)) {
    std::vector<Tensor> results;
    for (const std::vector<Tensor>& of_device : tensors) {
      results.insert(results.end(), of_device.begin() + static_cast<std::ptrdiff_t>(first),
                     of_device.begin() + static_cast<std::ptrdiff_t>(first + piece.size()));
    }
    const std::vector<Variable> outputs =
        record_many<BroadcastNode>(piece, std::move(results), devices[0]);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      copies[k / piece.size()].push_back(outputs[k]);
    }
    first += piece.size();
  }
  return copies;
}

}  // namespace lockstep::parallel
