#include "engine/nn/module.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/autograd/variable.h"
#include "engine/core/error.h"
#include "engine/trace/observer.h"

namespace lockstep::nn {

namespace {

std::string joined(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

// True if this is the first entry of the variable, which is then remembered.
bool is_first(std::vector<const void*>& seen, const Variable& variable) {
  if (std::find(seen.begin(), seen.end(), variable.identity()) != seen.end()) return false;
  seen.push_back(variable.identity());
  return true;
}

void notify_moved(trace::Observer& observer, const Module& module, Device device) {
  std::vector<const void*> leaves;
  std::string from;
  for (const Variable& parameter : module.parameters()) {
    if (parameter.device() == device) continue;
    leaves.push_back(parameter.identity());
    from = lockstep::to_string(parameter.device());
  }
  if (leaves.empty()) return;
  observer.fact("moved", {{"from", from}, {"to", lockstep::to_string(device)}, {"leaves", leaves}});
}

void notify_parameters(trace::Observer& observer, const Module& module) {
  std::vector<std::string> names;
  std::vector<const void*> leaves;
  for (const auto& [name, parameter] : module.named_parameters()) {
    names.push_back(name);
    leaves.push_back(parameter.identity());
  }
  observer.parameters(names, leaves);
}

// The input of the outermost module is the batch.
void notify_batch(trace::Observer& observer, const Module& module, const Variable& x) {
  if (!ForwardScope::is_outermost() || !grad_enabled() || x.shape().num_dims() == 0) return;
  if (observer.sees_arrivals()) notify_parameters(observer, module);
  observer.batch(trace::host_values(x.value()), x.shape()[0]);
}

}  // namespace

Variable Module::operator()(const Variable& x) {
  const ForwardScope scope;
  if (trace::Observer* const observer = trace::observer()) notify_batch(*observer, *this, x);
  return run_forward([&] { return forward(x); });
}

template <typename Self, typename Visit>
void Module::walk(Self& self, const std::string& prefix, const Visit& visit) {
  visit(prefix, self);
  for (const auto& [name, child] : self.children_) {
    walk(static_cast<Self&>(*child), joined(prefix, name), visit);
  }
}

std::vector<NamedParameter> Module::named_parameters(std::string_view prefix) const {
  std::vector<NamedParameter> result;
  std::vector<const void*> seen;
  walk(*this, std::string(prefix), [&](const std::string& path, const Module& module) {
    for (const auto& [name, parameter] : module.parameters_) {
      if (is_first(seen, parameter)) result.emplace_back(joined(path, name), parameter);
    }
  });
  return result;
}

std::vector<Variable> Module::parameters() const {
  std::vector<Variable> result;
  for (auto& [name, parameter] : named_parameters()) result.push_back(std::move(parameter));
  return result;
}

std::size_t Module::num_parameters() const {
  std::size_t total = 0;
  std::vector<const void*> seen;
  walk(*this, {}, [&](const std::string&, const Module& module) {
    for (std::size_t i = 0; i < module.parameters_.size(); ++i) {
      const bool counts = is_first(seen, module.parameters_[i].second);
      if (counts) total += module.unpadded(i).num_elements();
    }
  });
  return total;
}

Tensor Module::unpadded(std::size_t parameter) const {
  const Tensor& value = parameters_[parameter].second.value();
  const std::size_t padding = paddings_[parameter];
  return padding == 0 ? value : value.rows(0, value.size(0) - padding);
}

void Module::set_parameters(const std::vector<Variable>& values) {
  const std::vector<Variable> old = parameters();
  require(values.size() == old.size(), ErrorCode::Usage, "set_parameters",
          "{} has {} parameters, found {}", type_name(), old.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    require(values[i].defined(), ErrorCode::State, "set_parameters",
            "the variable for parameter {} of {} is undefined", i, type_name());
  }
  walk(*this, {}, [&](const std::string&, Module& module) {
    for (auto& [name, parameter] : module.parameters_) {
      const auto same =
          std::find_if(old.begin(), old.end(),
                       [&parameter = parameter](const auto& v) { return v.is_same(parameter); });
      parameter = values[static_cast<std::size_t>(same - old.begin())];
    }
  });
}

void Module::zero_grad() {
  for (Variable& parameter : parameters()) parameter.clear_grad();
}

std::vector<NamedBuffer> Module::named_buffers(std::string_view prefix) const {
  std::vector<NamedBuffer> result;
  walk(*this, std::string(prefix), [&](const std::string& path, const Module& module) {
    for (const auto& [name, buffer] : module.buffers_) {
      result.emplace_back(joined(path, name), buffer);
    }
  });
  return result;
}

std::vector<Tensor> Module::buffers() const {
  std::vector<Tensor> result;
  for (auto& [name, buffer] : named_buffers()) result.push_back(std::move(buffer));
  return result;
}

void Module::set_buffers(const std::vector<Tensor>& values) {
  const std::size_t count = buffers().size();
  require(values.size() == count, ErrorCode::Usage, "set_buffers", "{} has {} buffers, found {}",
          type_name(), count, values.size());
  for (std::size_t i = 0; i < count; ++i) {
    require(values[i].defined(), ErrorCode::State, "set_buffers",
            "the tensor for buffer {} of {} is undefined", i, type_name());
  }
  auto next = values.begin();
  walk(*this, {}, [&](const std::string&, Module& module) {
    for (auto& [name, buffer] : module.buffers_) buffer = *next++;
  });
}

void Module::set_mode(Mode mode) {
  walk(*this, {}, [mode](const std::string&, Module& module) { module.mode_ = mode; });
}

namespace {

// Replaces all tensors of a module by converted ones.
template <typename Convert>
void replace_tensors(Module& module, const Convert& convert) {
  for (Variable& parameter : module.parameters()) {
    parameter.set_value(convert(parameter.value()));
    if (parameter.grad().defined()) parameter.set_grad(convert(parameter.grad()));
  }
  std::vector<Tensor> buffers = module.buffers();
  for (Tensor& buffer : buffers) buffer = convert(buffer);
  module.set_buffers(buffers);
}

}  // namespace

void Module::to(Device device) {
  if (trace::Observer* observer = trace::observer()) notify_moved(*observer, *this, device);
  replace_tensors(*this, [device](const Tensor& tensor) { return tensor.to(device); });
}

void Module::to(DType dtype) {
  require(is_floating_point(dtype), ErrorCode::DType, "to",
          "a module only takes floating dtypes, found {}", lockstep::to_string(dtype));
  replace_tensors(*this, [dtype](const Tensor& tensor) {
    return is_floating_point(tensor.dtype()) ? tensor.to(dtype) : tensor;
  });
}

void Module::require_free_name(const std::string& name) const {
  const auto is_taken = [&name](const auto& entry) { return entry.first == name; };
  require(!name.empty() && name.find('.') == std::string::npos, ErrorCode::Usage, "module",
          "a name must not be empty or have a dot, found '{}'", name);
  require(std::none_of(parameters_.begin(), parameters_.end(), is_taken) &&
              std::none_of(buffers_.begin(), buffers_.end(), is_taken) &&
              std::none_of(children_.begin(), children_.end(), is_taken),
          ErrorCode::Usage, "module", "the name '{}' is taken in this module", name);
}

std::size_t Module::register_parameter(std::string name, Tensor value, std::size_t padding) {
  require_free_name(name);
  parameters_.emplace_back(std::move(name), Variable(std::move(value), RequiresGrad::yes));
  paddings_.push_back(padding);
  return parameters_.size() - 1;
}

std::size_t Module::register_buffer(std::string name, Tensor value) {
  require_free_name(name);
  require(value.defined(), ErrorCode::State, "module", "the buffer '{}' is an undefined tensor",
          name);
  buffers_.emplace_back(std::move(name), std::move(value));
  return buffers_.size() - 1;
}

std::size_t Module::register_child(std::string name, std::shared_ptr<Module> child) {
  require_free_name(name);
  require(child != nullptr, ErrorCode::Usage, "module", "the child '{}' is a null pointer", name);
  children_.emplace_back(std::move(name), std::move(child));
  return children_.size() - 1;
}

}  // namespace lockstep::nn
