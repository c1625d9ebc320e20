#include <algorithm>
#include <iterator>
#include <set>

#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "engine/parallel/data_parallel/steps.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"
#include "kernels/calls.h"

namespace lockstep::parallel {

namespace {

// Tells an observer that a tensor of one or several devices has come to another one.
void notify_arrival(std::string_view operation, std::vector<int> from, Device to,
                    const Tensor& tensor) {
  std::erase(from, to.index);
  trace::Observer* const observer = trace::observer_of_arrivals();
  if (observer == nullptr || from.empty()) return;
  observer->arrived({.operation = operation,
                     .to = to.index,
                     .from = from,
                     .adds = operation == "reduce_gradients",
                     .values = trace::host_values(tensor)});
}

// Outputs are ordered by device, then by variable: output d * num_inputs() + i.
Gradients sum_of_replicas(const Node& node, const Gradients& grad_outputs) {
  runtime::LogicalDevice& here = runtime::logical_device(node.device());
  runtime::Stream& reader = here.compute_stream();
  // This device reads the other devices' gradients where they lie: after the work that their
  // streams hold now, and before their later work. A gradient that it cannot read is copied.
  const auto is_readable = [&](const Tensor& grad) {
    return runtime::reaches(here, grad.logical_device());
  };
  std::set<runtime::Stream*> owners;
  for (const Tensor& grad : grad_outputs) {
    if (grad.defined() && is_readable(grad)) owners.insert(&grad.stream());
  }
  owners.erase(&reader);
  for (runtime::Stream* owner : owners) reader.wait(owner->record());
  Gradients sums(node.num_inputs());
  std::vector<Tensor> copies;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::vector<ConstTensorView> views;
    std::vector<int> from;
    for (std::size_t k = i; k < grad_outputs.size(); k += sums.size()) {
      const Tensor& grad = grad_outputs[k];
      if (!grad.defined()) continue;
      copies.push_back(is_readable(grad) ? grad : grad.to(node.device()));
      views.push_back(copies.back().view());
      from.push_back(grad.device().index);
      if (k >= sums.size()) {
        trace::count_collective(grad.device().index, "reduce_gradients", grad.num_bytes());
      }
    }
    if (views.empty()) continue;  // no replica used this parameter
    sums[i] = node.gradient_buffer(i);
    sums[i].backend().ordered_reduce(sums[i].stream(), {views, 1.0, sums[i].view()});
    notify_arrival("reduce_gradients", std::move(from), node.device(), sums[i]);
  }
  for (runtime::Stream* owner : owners) owner->wait(reader.record());
  return sums;
}

}  // namespace

std::vector<std::vector<Variable>> broadcast_coalesced(const std::vector<Variable>& variables,
                                                       const std::vector<Device>& devices) {
  std::size_t num_bytes = 0;
  for (const Variable& variable : variables) num_bytes += variable.value().num_bytes();
  runtime::WorkSpan span(runtime::logical_device(devices[0]).compute_stream(), trace::Lane::copy,
                         trace::Category::copy, "replicate", num_bytes * (devices.size() - 1));
  trace::count_collective(devices[0].index, "replicate", num_bytes * (devices.size() - 1));
  std::vector<std::vector<Tensor>> tensors(devices.size());
  const auto copy_to = [&](std::size_t d) {
    for (const Variable& variable : variables) {
      tensors[d].push_back(variable.value().to(devices[d]));
      notify_arrival("replicate", {devices[0].index}, devices[d], tensors[d].back());
    }
  };
  // On a GPU the copies take long, but not in the thread that launches them.
  if (devices[0].type == DeviceType::cuda) {
    for (std::size_t d = 0; d < devices.size(); ++d) copy_to(d);
  } else {
    for_each_device(devices, copy_to);
  }
  // Frozen variables need no node.
  std::vector<Variable> trained;
  std::vector<Tensor> results;
  for (const std::vector<Tensor>& of_device : tensors) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (variables[i].requires_grad()) results.push_back(of_device[i]);
    }
  }
  std::ranges::copy_if(variables, std::back_inserter(trained), &Variable::requires_grad);
  const std::vector<Variable> outputs =
      record_many("Broadcast", trained, std::move(results), devices[0], sum_of_replicas);
  auto output = outputs.begin();
  std::vector<std::vector<Variable>> copies(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      copies[d].push_back(variables[i].requires_grad() ? *output++ : Variable(tensors[d][i]));
    }
  }
  return copies;
}

void require_on_device(const nn::Module& module, Device device) {
  const auto check = [device](Device found, const std::string& name) {
    if (found == device) return;
    fail(ErrorCode::Device, "data_parallel",
         "module must have its parameters and buffers on device {} (device_ids[0]) but found one "
         "of them on device {}: {} (older texts: all tensors must be on devices[0]); move the "
         "module with to({}) first",
         to_string(device), to_string(found), name, to_string(device));
  };
  for (const auto& [name, parameter] : module.named_parameters()) check(parameter.device(), name);
  for (const auto& [name, buffer] : module.named_buffers()) check(buffer.device(), name);
}

std::vector<std::shared_ptr<nn::Module>> replicate(const nn::Module& module,
                                                   const std::vector<Device>& devices) {
  require(!devices.empty(), ErrorCode::Usage, "replicate", "needs at least one device");
  const std::vector<Tensor> buffers = module.buffers();
  require_on_device(module, devices[0]);
  const auto parameters = broadcast_coalesced(module.parameters(), devices);
  std::vector<std::shared_ptr<nn::Module>> replicas;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::shared_ptr<nn::Module> replica = module.shallow_copy();
    replica->set_parameters(parameters[d]);
    if (d > 0 && !buffers.empty()) {
      std::vector<Tensor> copies;
      for (const Tensor& buffer : buffers) copies.push_back(buffer.to(devices[d]));
      replica->set_buffers(copies);
    }
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

}  // namespace lockstep::parallel
