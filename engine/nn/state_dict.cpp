#include "engine/nn/state_dict.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/trace/observer.h"

namespace lockstep::nn {

namespace {

constexpr std::string_view kWrapperPrefix = "module.";

void collect(const Module& module, const std::string& prefix, StateDict& state) {
  const std::vector<NamedParameter>& parameters = module.own_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    state.emplace_back(prefix + parameters[i].first, module.unpadded(i));
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
// A file may hold a million names, and each may be long.
std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 20;
  std::vector<std::string> some;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNames); ++i)
    some.push_back(shown(names[i]));
  return fmt::format(
      "\"{}\"{}", fmt::join(some, "\", \""),
      names.size() > kMaxNames ? fmt::format(" and {} more", names.size() - kMaxNames) : "");
}

enum class Order { as_in_memory, as_in_files };

Order opposite(Order order) {
  return order == Order::as_in_files ? Order::as_in_memory : Order::as_in_files;
}

// The shape of a tensor in this order, if it comes from the other one: a convolution's weight,
// which has four dimensions, is [out, in, height, width] in files.
Shape reordered(const Shape& shape, Order order) {
  if (shape.num_dims() != 4) return shape;
  return order == Order::as_in_files ? Shape{shape[0], shape[3], shape[1], shape[2]}
                                     : Shape{shape[0], shape[2], shape[3], shape[1]};
}

// The block of a GPT that a weight of its linear layers belongs to, "transformer.h.0"; else
// nothing.
std::string gpt_block(std::string_view name) {
  for (const std::string_view layer :
       {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"}) {
    if (name.ends_with(layer)) return std::string(name.substr(0, name.size() - layer.size()));
  }
  return {};
}

// The weights that have another order in files than in memory.
class OtherOrder {
 public:
  // state: in the given order.
  OtherOrder(const StateDict& state, Order order) : order_(order) {
    // GPT-2's files have [in, out], Hugging Face's Conv1D; those of nn.Linear (nanoGPT) do not.
    // c_attn, which makes three vectors of one, tells them apart.
    for (const auto& [name, tensor] : state) {
      if (!name.ends_with(".attn.c_attn.weight") || tensor.num_dims() != 2) continue;
      const std::size_t in = tensor.size(order == Order::as_in_files ? 0 : 1);
      const std::size_t out = tensor.size(order == Order::as_in_files ? 1 : 0);
      if (out == 3 * in) conv1d_blocks_.insert(gpt_block(name));
    }
  }

  Shape convert(std::string_view name, const Shape& shape) const {
    if (is_conv1d(name, shape)) return {shape[1], shape[0]};
    return reordered(shape, opposite(order_));
  }
  // The same for a tensor in the CPU's memory.
  Tensor convert(std::string_view name, const Tensor& tensor) const {
    const Shape& shape = tensor.shape();
    if (is_conv1d(name, shape)) return swap_axes(tensor, convert(name, shape), 1, shape[0]);
    if (shape.num_dims() != 4) return tensor;
    const std::size_t rows = order_ == Order::as_in_files ? shape[1] : shape[1] * shape[2];
    return swap_axes(tensor, convert(name, shape), shape[0], rows);
  }

 private:
  bool is_conv1d(std::string_view name, const Shape& shape) const {
    return shape.num_dims() == 2 && conv1d_blocks_.contains(gpt_block(name));
  }
  // The transpose of each of num_matrices matrices of so many rows.
  static Tensor swap_axes(const Tensor& tensor, const Shape& shape, std::size_t num_matrices,
                          std::size_t rows) {
    const Tensor result = Tensor::empty(shape, tensor.dtype(), tensor.device());
    const std::size_t size = size_of(tensor.dtype());
    const std::size_t cols = tensor.num_elements() / std::max<std::size_t>(1, num_matrices * rows);
    const auto* from = static_cast<const std::byte*>(tensor.raw());
    auto* const to = static_cast<std::byte*>(result.raw());
    for (std::size_t m = 0; m < num_matrices; ++m) {
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < cols; ++j, from += size) {
          std::memcpy(to + ((m * cols + j) * rows + i) * size, from, size);
        }
      }
    }
    return result;
  }

  Order order_;
  std::set<std::string> conv1d_blocks_;
};

// Advice if one side was wrapped (in DataParallel or Ddp, by torch.compile, as a member) and the
// other was not.
std::string prefix_advice(const StateDict& state, const Module& module, const LoadResult& result) {
  const std::string prefix = find_prefix(state, module);
  if (prefix == kWrapperPrefix) {
    return " The state was saved from a wrapped module: save the inner module's state_dict, or "
           "wrap this module before loading (strip_prefix(state, \"module.\") helps with files "
           "that exist).";
  }
  if (!prefix.empty()) {
    return fmt::format(
        " Every name in the state begins with \"{0}\": save the state_dict of the module inside, "
        "or take it off with strip_prefix(state, \"{0}\").",
        prefix);
  }
  const auto is_wrapped = [](const std::string& name) { return name.starts_with(kWrapperPrefix); };
  const StateDict targets = strip_prefix(state_dict(module), kWrapperPrefix);
  const auto is_target = [&](const std::string& name) {
    return std::ranges::any_of(targets, [&](const auto& target) { return target.first == name; });
  };
  if (!result.unexpected_keys.empty() && std::ranges::all_of(result.missing_keys, is_wrapped) &&
      std::ranges::all_of(result.unexpected_keys, is_target)) {
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
            "the name \"{}\" appears twice in the state", name);
  }
  LoadResult result;
  std::string mismatches;
  const OtherOrder files(state, Order::as_in_memory);  // errors show the sizes of files
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
          " size mismatch for {}: copying a param with shape torch.Size({}) from checkpoint, the "
          "shape in current model is torch.Size({}).",
          name, lockstep::to_string(files.convert(name, shape)),
          lockstep::to_string(files.convert(name, target.shape())));
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
          module.type_name(), problems, prefix_advice(state, module, result));

  // All conversions come before the first copy, so that a failed one leaves the module unchanged.
  std::vector<Tensor> converted;
  for (const auto& [target, source] : copies) converted.push_back(source->to(target.dtype()));
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].first.copy_from(converted[i]);
  trace::fact("loaded", {{"model", module.type_name()},
                         {"loaded", copies.size()},
                         {"missing", result.missing_keys},
                         {"unexpected", result.unexpected_keys}});
  return result;
}

std::string find_prefix(const StateDict& state, const Module& module) {
  if (state.empty()) return {};
  std::set<std::string_view> wanted;
  const StateDict targets = state_dict(module);
  for (const auto& [name, tensor] : targets) wanted.insert(name);
  std::string_view best;
  std::size_t most_fit = 0;
  // "", "a.", "a.b." of "a.b.weight".
  const std::string_view first = state.front().first;
  for (std::size_t length = 0; length != std::string_view::npos;) {
    const std::string_view prefix = first.substr(0, length);
    std::size_t num_fit = 0;
    for (const auto& [name, tensor] : state) {
      if (!name.starts_with(prefix)) return std::string(best);
      num_fit += wanted.count(std::string_view(name).substr(length));
    }
    if (num_fit > most_fit) {
      most_fit = num_fit;
      best = prefix;
    }
    const std::size_t dot = first.find('.', length);
    length = dot == std::string_view::npos ? dot : dot + 1;
  }
  return std::string(best);
}

StateDict strip_prefix(const StateDict& state, std::string_view prefix) {
  StateDict result = state;
  for (auto& [name, tensor] : result) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  return result;
}

void save_weights(const std::filesystem::path& path, const Module& module) {
  save_weights(path, state_dict(module));
}

void save_weights(const std::filesystem::path& path, const StateDict& state,
                  checkpoint::Metadata metadata) {
  std::vector<Tensor> on_host;  // keeps the bytes alive that the views look at
  std::vector<checkpoint::NamedArrayView> arrays;
  const OtherOrder files(state, Order::as_in_memory);
  for (const auto& [name, tensor] : state) {
    tensor.stream().synchronize();
    const Tensor copy = tensor.to(Device{});
    copy.stream().synchronize();
    const Tensor& host = on_host.emplace_back(files.convert(name, copy));
    arrays.push_back({name,
                      host.dtype(),
                      host.shape(),
                      {static_cast<const std::byte*>(host.raw()), host.num_bytes()}});
  }
  metadata.emplace("format", "pt");
  checkpoint::write_safetensors(path, arrays, metadata);
  trace::fact("saved", {{"path", path.string()}});
}

StateDict load_weights(const std::filesystem::path& path) {
  StateDict state;
  for (const checkpoint::NamedArray& array : checkpoint::read_safetensors(path).arrays) {
    Tensor tensor = Tensor::empty(array.shape, array.dtype, Device{});
    if (!array.bytes.empty()) std::memcpy(tensor.raw(), array.bytes.data(), array.bytes.size());
    state.emplace_back(array.name, std::move(tensor));
  }
  const OtherOrder memory(state, Order::as_in_files);
  for (auto& [name, tensor] : state) tensor = memory.convert(name, tensor);
  return state;
}

}  // namespace lockstep::nn
