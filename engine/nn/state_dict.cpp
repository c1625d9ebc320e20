#include "engine/nn/state_dict.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "engine/core/error.h"

namespace lockstep::nn {
namespace {

constexpr std::string_view kWrapperPrefix = "module.";

void collect(const Module& module, const std::string& prefix, StateDict& state) {
  for (const auto& [name, parameter] : module.own_parameters()) {
    state.emplace_back(prefix + name, parameter.value());
  }
  for (const auto& [name, buffer] : module.own_buffers()) state.emplace_back(prefix + name, buffer);
  for (const auto& [name, child] : module.children()) collect(*child, prefix + name + ".", state);
}

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

// "weight", "bias"
std::string quoted(const std::vector<std::string>& names) {
  return fmt::format("\"{}\"", fmt::join(names, "\", \""));
}

std::string torch_size(const Shape& shape) {
  return fmt::format("torch.Size({})", lockstep::to_string(shape));
}

// Whether `longer` is `shorter` with the wrapper's prefix before every name.
bool differ_by_prefix(const std::vector<std::string>& shorter,
                      const std::vector<std::string>& longer) {
  return !shorter.empty() &&
         std::equal(shorter.begin(), shorter.end(), longer.begin(), longer.end(),
                    [](const std::string& a, const std::string& b) {
                      return b == std::string(kWrapperPrefix) + a;
                    });
}

// What to do when one side was wrapped (in DataParallel or Ddp) and the other was not.
std::string prefix_advice(const LoadResult& result) {
  if (differ_by_prefix(result.missing_keys, result.unexpected_keys)) {
    return " The state was saved from a wrapped module: save the inner module's state_dict, or "
           "wrap this module before loading (strip_prefix(state, \"module.\") helps with files "
           "that exist).";
  }
  if (differ_by_prefix(result.unexpected_keys, result.missing_keys)) {
    return " The state was saved from a module that was not wrapped: load it into the inner "
           "module, or save the wrapped module's state_dict.";
  }
  return {};
}

}  // namespace

StateDict state_dict(const Module& module, std::string_view prefix) {
  StateDict state;
  collect(module, std::string(prefix), state);
  return state;
}

LoadResult load_state_dict(Module& module, const StateDict& state, Strict strict) {
  const StateDict targets = state_dict(module);
  std::unordered_map<std::string_view, const Tensor*> sources;
  for (const auto& [name, tensor] : state) {
    require(sources.emplace(name, &tensor).second, ErrorCode::State, "load_state_dict",
            "the name \"{}\" stands twice in the state", name);
  }
  LoadResult result;
  std::string mismatches;
  std::vector<std::pair<Tensor, const Tensor*>> copies;
  for (const auto& [name, target] : targets) {
    const auto source = sources.find(name);
    if (source == sources.end()) {
      result.missing_keys.push_back(name);
      continue;
    }
    const Shape& shape = source->second->shape();
    if (shape == target.shape()) {
      copies.emplace_back(target, source->second);
    } else {
      mismatches += fmt::format(
          " size mismatch for {}: copying a param with shape {} from checkpoint, the shape in "
          "current model is {}.",
          name, torch_size(shape), torch_size(target.shape()));
    }
    sources.erase(source);
  }
  for (const std::string& name : names_of(state)) {
    if (sources.contains(name)) result.unexpected_keys.push_back(name);
  }

  std::string problems;
  if (strict == Strict::yes && !result.missing_keys.empty()) {
    problems += fmt::format(" Missing key(s) in state_dict: {}.", quoted(result.missing_keys));
  }
  if (strict == Strict::yes && !result.unexpected_keys.empty()) {
    problems +=
        fmt::format(" Unexpected key(s) in state_dict: {}.", quoted(result.unexpected_keys));
  }
  const ErrorCode code = problems.empty() ? ErrorCode::Shape : ErrorCode::State;
  problems += mismatches;
  require(problems.empty(), code, "load_state_dict", "Error(s) in loading state_dict for {}:{}{}",
          module.type_name(), problems, prefix_advice(result));

  // All conversions before the first copy: one that fails leaves the module as it was.
  std::vector<Tensor> converted;
  for (const auto& [target, source] : copies) converted.push_back(source->to(target.dtype()));
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].first.copy_from(converted[i]);
  return result;
}

StateDict strip_prefix(const StateDict& state, std::string_view prefix) {
  StateDict result = state;
  for (auto& [name, tensor] : result) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  return result;
}

}  // namespace lockstep::nn
